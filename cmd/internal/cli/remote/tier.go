package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// tierSettings are the flags of "subject set".
type tierSettings struct {
	Client
	expiry
}

func subjectSetCommand() *cobra.Command {
	s := &tierSettings{Client: Client{writing: true}}
	c := s.command("set PART=VALUE TIER",
		"Put a subject into a tier",
		"Put a subject into a tier, in place of its current one. PART is the key part that the policy names\n"+
			"under tiers.subject. The entry is stored in the gateway's database (--rules), and takes effect on\n"+
			"all instances within a second.",
		"  sluice subject set api_key=k-42 pro --until 2026-12-31 --reason 'a trial'",
		func(c *cobra.Command, args []string) error { return s.set(c, args) })
	s.expiry.addFlags(c.Flags())
	return c
}

func (s *tierSettings) set(c *cobra.Command, args []string) error {
	given, err := syntax{rest: true}.parse("subject set", args)
	switch {
	case err != nil:
		return err
	case len(given.rest) != 1:
		return errors.New("subject set: missing tier: write its name after the value, as in api_key=k-42 pro")
	}
	if err := s.expiry.check("subject delete"); err != nil {
		return err
	}
	is := policy.TierSubject{Tier: given.rest[0], Until: s.until, Reason: s.reason}
	part, old, err := s.findTier(c.Context(), &given)
	if err != nil {
		return err
	}
	is.Subject = given.key[part]
	return s.put(c, "/v1/subjects", old, is, subjectTierText(part, &is))
}

func subjectDeleteCommand() *cobra.Command {
	a := &Client{writing: true}
	return a.command("delete PART=VALUE", "Remove a subject from its tier",
		"Remove a subject from its tier in the database. Entries in the policy file cannot be deleted this\n"+
			"way: if the file has one for the same subject, that entry applies from then on.",
		"  sluice subject delete api_key=k-42",
		func(c *cobra.Command, args []string) error {
			given, err := syntax{}.parse("subject delete", args)
			if err != nil {
				return err
			}
			_, old, err := a.findTier(c.Context(), &given)
			if err != nil {
				return err
			}
			if old == nil {
				return command.Failed(fmt.Errorf("%s has no tier: see \"sluice subject list\"", keyText(given.key)))
			}
			return a.remove(c, old)
		})
}

// findTier returns the key part by which the policy looks up subjects, and the tier entry of the subject with the
// given value of that part, or nil.
func (a *Client) findTier(ctx context.Context, given *subjectArgs) (part string, old *held, err error) {
	if part, err = a.tierPart(ctx); err != nil {
		return part, nil, err
	}
	value, found := given.key[part]
	if !found || value == "" || len(given.key) > 1 {
		return part, nil, command.Failed(fmt.Errorf("%s: the policy looks up subjects by %s: write %s=VALUE", keyText(given.key), part, part))
	}
	document := policy.TierSubject{}
	if old, err = a.find(ctx, "/v1/subjects/"+url.PathEscape(value), &document); old != nil {
		document.Subject = value
		old.text = subjectTierText(part, &document)
	}
	return part, old, err
}

// tierPart returns the key part by which the policy in force looks subjects up.
func (a *Client) tierPart(ctx context.Context) (string, error) {
	var now struct {
		Document struct{ Tiers policy.Tiers }
	}
	if _, err := a.call(ctx, http.MethodGet, "/v1/policy", nil, "", nil, &now); err != nil {
		return "", err
	}
	part := now.Document.Tiers.Subject
	if part == "" {
		return "", command.Failed(errors.New("the policy does not look up subjects: set the key part that names them, as in \"tiers: {subject: api_key}\""))
	}
	return part, nil
}

// subjectTierText returns a subject's tier in words.
func subjectTierText(part string, d *policy.TierSubject) string {
	return printable.Line(part + "=" + d.Subject + ": tier " + d.Tier + terms(d.Until, d.Reason))
}

func subjectListCommand() *cobra.Command {
	a := &Client{}
	return a.command("list", "List the subjects that have a tier",
		"List the subjects with an entry that puts them into a tier, including the entries of the policy\n"+
			"file. With --output json, each subject is one line.",
		"  sluice subject list",
		func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("subject list: %.60q: it takes no arguments; \"sluice subject\" shows one subject", args[0])
			}
			return list(a, c, "/v1/subjects", url.Values{}, "SUBJECT\tTIER\tUNTIL\tFROM\tBY\tREASON", func(source string, d *policy.TierSubject) []string {
				return []string{d.Subject, d.Tier, listedEnd(d.Until), source, d.By, d.Reason}
			})
		})
}
