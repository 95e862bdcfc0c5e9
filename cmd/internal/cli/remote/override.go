package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

func overrideCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "override",
		Short: "Give a subject of a rule another limit, block it or exempt it",
		Long: "Set, list and delete overrides. An override gives a subject of a rule another limit, blocks it or\n" +
			"exempts it, and may have an expiry date. Overrides are stored in the gateway's database (--rules),\n" +
			"and take effect on all instances within a second.",
		Args: cobra.NoArgs,
	}
	c.AddCommand(overrideSetCommand(), overrideListCommand(), overrideDeleteCommand())
	return c
}

// overrideSettings are the flags of "override set".
type overrideSettings struct {
	Client
	expiry
	block, exempt bool
}

func overrideSetCommand() *cobra.Command {
	s := &overrideSettings{Client: Client{writing: true}}
	c := s.command("set RULE PART=VALUE... [LIMIT...]",
		"Set or replace the override of a subject",
		"Set the override of a subject of a rule: one or several limits, a number for a rule with\n"+
			"in_flight, --block or --exempt. An override for the same values is replaced. An omitted key part\n"+
			"matches every value, and a network as client_ip matches each of its addresses.",
		"  sluice override set per-key api_key=k-42 5000/minute --until 2026-12-31 --reason 'a launch'\n"+
			"  sluice override set per-address client_ip=203.0.113.0/24 --block",
		func(c *cobra.Command, args []string) error { return s.set(c, args) })
	f := c.Flags()
	f.BoolVar(&s.block, "block", false, "deny the requests that the rule would count for the subject")
	f.BoolVar(&s.exempt, "exempt", false, "exempt the subject: the rule neither counts nor denies its requests")
	s.expiry.addFlags(f)
	return c
}

func (s *overrideSettings) set(c *cobra.Command, args []string) error {
	subject, err := syntax{rule: true, rest: true}.parse("override set", args)
	switch {
	case err != nil:
		return err
	case len(subject.rest) == 0 && !s.block && !s.exempt:
		return errors.New("override set: missing limit: write one as in 5000/minute, or --block or --exempt")
	}
	if err := s.expiry.check("override delete"); err != nil {
		return err
	}
	o := policy.Override{Rule: subject.rule, Key: subject.key, Block: s.block, Exempt: s.exempt, Until: s.until, Reason: s.reason}
	o.SetLimits(subject.rest)
	old, err := s.findOverride(c.Context(), &subject)
	if err != nil {
		return err
	}
	return s.put(c, "/v1/overrides", old, o, overrideText(&o))
}

// findOverride returns the override with exactly the key of a subject, or nil.
func (a *Client) findOverride(ctx context.Context, s *subjectArgs) (*held, error) {
	var o policy.Override
	old, err := a.find(ctx, "/v1/overrides/"+source.OverrideName(s.rule, s.key), &o)
	if old != nil {
		old.text = overrideText(&o)
	}
	return old, err
}

// overrideText returns an override in words.
func overrideText(o *policy.Override) string {
	return printable.Line(o.Rule + " " + keyText(o.Key) + ": " + effect(o) + terms(o.Until, o.Reason))
}

// effect describes what an override does.
func effect(o *policy.Override) string {
	switch {
	case o.Block:
		return "blocked"
	case o.Exempt:
		return "exempt"
	case o.InFlight > 0:
		return fmt.Sprintf("%d in flight", o.InFlight)
	}
	return strings.Join(o.LimitTexts(), ", ")
}

func overrideListCommand() *cobra.Command {
	a := &Client{}
	var rule string
	c := a.command("list [PART=VALUE...]", "List overrides",
		"List overrides, including those of the policy file. --rule and PART=VALUE restrict the list. With\n"+
			"--output json, each override is one line.",
		"  sluice override list --rule per-key",
		func(c *cobra.Command, args []string) error {
			s, err := syntax{any: true}.parse("override list", args)
			if err != nil {
				return err
			}
			s.rule = rule
			return list(a, c, "/v1/overrides", s.query(), "RULE\tKEY\tLIMIT\tUNTIL\tFROM\tBY\tREASON", func(source string, o *policy.Override) []string {
				return []string{o.Rule, keyText(o.Key), effect(o), listedEnd(o.Until), source, o.By, o.Reason}
			})
		})
	c.Flags().StringVar(&rule, "rule", "", "only overrides of this `rule`")
	return c
}

func overrideDeleteCommand() *cobra.Command {
	a := &Client{writing: true}
	return a.command("delete RULE PART=VALUE...", "Delete the override of a subject",
		"Delete the override of RULE with exactly the given values from the gateway's database. Overrides in\n"+
			"the policy file cannot be deleted this way: if the file has one for the same values, that override\n"+
			"applies from then on.",
		"  sluice override delete per-key api_key=k-42",
		func(c *cobra.Command, args []string) error {
			s, err := syntax{rule: true}.parse("override delete", args)
			if err != nil {
				return err
			}
			old, err := a.findOverride(c.Context(), &s)
			if err != nil {
				return err
			}
			if old == nil {
				return command.Failed(fmt.Errorf("rule %q has no override for %s: see \"sluice override list\"", s.rule, keyText(s.key)))
			}
			return a.remove(c, old)
		})
}
