package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/control"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/internal/printable"
)

func subjectCommand() *cobra.Command {
	a := &Client{}
	var rule string
	c := a.command("subject PART=VALUE...", "Show a subject's remaining quota, or set its tier",
		"Show the limits of a subject: for each, how much is used and left, when all of it will be available\n"+
			"again, and whether it comes from the rule, a tier or an override. Without --rule, the output covers\n"+
			"every rule whose key parts are all given. An empty value matches requests without that key part.\n\n"+
			"The subcommands list and change the tiers of subjects.",
		"  sluice subject client_ip=192.0.2.7\n  sluice subject api_key=k-42 --rule per-key",
		func(c *cobra.Command, args []string) error {
			s, err := syntax{any: rule != ""}.parse("subject", args)
			if err != nil {
				return err
			}
			s.rule = rule
			var limits control.SubjectLimits
			answer, err := a.call(c.Context(), http.MethodGet, "/v1/subjects", s.query(), "", nil, &limits)
			if err != nil {
				return err
			}
			return a.print(c, answer, func(out io.Writer) { printSubject(out, limits.Rules) })
		})
	c.Flags().StringVar(&rule, "rule", "", "only this `rule`")
	c.AddCommand(subjectSetCommand(), subjectListCommand(), subjectDeleteCommand())
	return c
}

func printSubject(out io.Writer, rules []control.SubjectState) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tLIMIT\tUSED\tLEFT\tFULL AGAIN\tFROM")
	for i := range rules {
		for _, l := range rules[i].Limits {
			full := "now"
			if l.Used > 0 {
				full = "when they end" // requests in flight have no known end
			}
			if l.FullAt != nil {
				full = "in " + command.RoundUp(time.Until(*l.FullAt)).String()
			}
			from := l.From
			if l.Source != "" {
				from += " (" + l.Source + ")"
			}
			left := l.Text(l.Remaining)
			if owed := l.Owed(); owed > 0 {
				left = "owes " + l.Text(owed)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, l.Limit, l.Text(l.Used), left, full, from)
		}
	}
	_ = table.Flush() // to a buffer
	for i := range rules {
		if o := rules[i].Override; o != nil {
			fmt.Fprintf(out, "override: %s\n", overrideText(o.Document))
		} else if rules[i].Blocked {
			fmt.Fprintf(out, "blocked:  %s %s, %s\n", rules[i].Rule, keyText(rules[i].Key), blockEnd(rules[i].BlockedUntil))
		}
	}
}

// subjectRequest is the body of a request that changes a subject.
type subjectRequest struct {
	Rule   string            `json:"rule"`
	Key    map[string]string `json:"key"`
	Reason string            `json:"reason,omitempty"`
	Until  string            `json:"until,omitempty"`
	Units  int64             `json:"units,omitempty"`
	USD    string            `json:"usd,omitempty"`
}

// subjectChange is a command that changes a subject.
type subjectChange struct {
	Client
	name    string
	request subjectRequest
	units   bool // the last argument is a number of units
}

func (s *subjectChange) command(short, long, example string) *cobra.Command {
	s.writing = true
	use := s.name + " RULE PART=VALUE..."
	if s.units {
		use += " UNITS"
	}
	c := s.Client.command(use, short, long, example, func(c *cobra.Command, args []string) error { return s.run(c, args) })
	c.Flags().StringVar(&s.request.Reason, "reason", "", "reason, for the audit log")
	return c
}

func (s *subjectChange) run(c *cobra.Command, args []string) error {
	subject, err := syntax{rule: true, rest: s.units, any: true}.parse(s.name, args)
	if err != nil {
		return err
	}
	if s.units {
		if err = s.request.setUnits(subject.rest); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	s.request.Rule, s.request.Key = subject.rule, subject.key
	var change control.SubjectChange
	answer, err := s.call(c.Context(), http.MethodPost, "/v1/subjects/"+s.name, s.changeQuery(), "", s.request, &change)
	if err != nil {
		return err
	}
	return s.print(c, answer, func(out io.Writer) {
		fmt.Fprintln(out, s.tense("before", "is"))
		printSubject(out, []control.SubjectState{change.Before})
		fmt.Fprintln(out, s.tense("after", "would be"))
		printSubject(out, []control.SubjectState{change.After})
	})
}

// setUnits parses the argument with a number of units, or with an amount such as "0.50 USD".
func (r *subjectRequest) setUnits(args []string) (err error) {
	text := strings.Join(args, " ")
	amount, inUSD := strings.CutSuffix(text, "USD")
	if amount = strings.TrimSpace(amount); inUSD {
		r.USD = amount
		_, err = printable.ParseDecimal(amount)
		return err
	}
	if len(args) != 1 {
		return errors.New("missing number of units: write one number after the key, or an amount as in \"0.50 USD\"")
	}
	if r.Units, err = strconv.ParseInt(text, 10, 64); err != nil || r.Units < 1 {
		return fmt.Errorf("%.60q: write the units as a whole number, at least 1", text)
	}
	return nil
}

func resetCommand() *cobra.Command {
	return (&subjectChange{name: "reset"}).command("Reset the counters of a subject",
		"Reset the counters of a rule for a subject, so that its full limit is available again.",
		"  sluice reset login client_ip=192.0.2.7 body:username=alice")
}

func refundCommand() *cobra.Command {
	return (&subjectChange{name: "refund", units: true}).command("Give units back to a subject",
		"Give units back to a subject of a rule, or an amount if the rule counts in USD. Units beyond what\n"+
			"the subject has used are lost.",
		"  sluice refund per-key api_key=k-42 100 --reason 'an outage of ours'\n  sluice refund team-usd header:X-Team=red '0.50 USD'")
}

func blockCommand() *cobra.Command {
	s := &subjectChange{name: "block"}
	c := s.command("Deny the requests of a subject until a date",
		"Deny, with 403, the requests that RULE counts for a subject, such as an API key or an address. The\n"+
			"block lasts until the date of --until, which is required, or until \"sluice unblock\" lifts it. For\n"+
			"a block without an end, use \"sluice override set --block\".\n\n"+
			"With a database, the block is an override and takes effect on all instances within a second.\n"+
			"With only a policy file, it applies to the gateway at --admin-url, and ends when that gateway stops.",
		"  sluice block per-key api_key=k-42 --until 2026-12-31 --reason abuse")
	addUntil(c.Flags(), &s.request.Until)
	return c
}

func unblockCommand() *cobra.Command {
	return (&subjectChange{name: "unblock"}).command("Lift the block of a subject",
		"Lift the block of a subject. If the block comes from an override that also covers other subjects,\n"+
			"change that override instead.",
		"  sluice unblock per-key api_key=k-42")
}
