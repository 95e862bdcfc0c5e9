package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/cli/remote"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// diffSettings are the flags of "diff".
type diffSettings struct {
	remote.Client
	live bool
}

func diffCommand() *cobra.Command {
	s := new(diffSettings)
	c := &cobra.Command{
		Use:   "diff FILE",
		Short: "Compare a policy file with the policy that is in force",
		Long: "Compare a policy file with the policy in force in a running gateway, as if the file replaced the\n" +
			"gateway's policy file, with the rules of its database on top. \"-\" is standard input.\n\n" +
			"With --live, try the file on the requests of the last hour that the gateway has recorded (see\n" +
			"serve --recent). The result shows the requests that would newly be denied or no longer be\n" +
			"denied, by rule and tier. Both policies start once from empty and once from full counters: the\n" +
			"truth lies in between." + remote.Help,
		Example: "  sluice diff api.yaml\n  sluice diff api.yaml --live",
		Args:    command.Args(1, 1, "diff: which file? Give one, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE:    func(c *cobra.Command, args []string) error { return s.run(c, args[0]) },
	}
	s.AddFlags(c.Flags(), "http://127.0.0.1:9090")
	c.Flags().BoolVar(&s.live, "live", false, "try the policy on the requests of the last hour")
	return c
}

func (s *diffSettings) run(c *cobra.Command, file string) error {
	if err := s.CheckOutput(); err != nil {
		return err
	}
	doc, _, err := (&policySource{file: file}).read(c, "diff")
	if err != nil {
		return err
	}
	found, err := s.Diff(c.Context(), inlined(*doc), s.live)
	if err != nil {
		return err
	}
	return s.Print(c, found, func(w io.Writer) { writeDiff(w, found) })
}

// inlined returns a document that has the contents of its files in place of their names.
func inlined(doc policy.Document) policy.Document {
	lists := map[string]policy.List{}
	for name, l := range doc.Lists {
		lists[name] = policy.List{Networks: l.Networks}
	}
	answers := map[string]policy.Answer{}
	for status, a := range doc.Answers {
		a.File = ""
		a.Bodies = append([]policy.Body(nil), a.Bodies...)
		for i := range a.Bodies {
			a.Bodies[i].File = ""
		}
		answers[status] = a
	}
	doc.Lists, doc.Answers, doc.Prices.File = lists, answers, ""
	return doc
}

func writeDiff(w io.Writer, d *control.PolicyDiff) {
	if len(d.Changes) == 0 {
		fmt.Fprintln(w, "The rules equal those in force.")
	}
	for _, change := range d.Changes {
		fmt.Fprintln(w, printable.Line(policy.Change(change).String()))
	}
	for _, r := range d.BeginsAnew {
		fmt.Fprintln(w, printable.Line(fmt.Sprintf("%s: counts of %s start from zero: %s, was %s", r.Rule, r.From, r.Is, r.Was)))
	}
	for _, warning := range d.Warnings {
		fmt.Fprintln(w, printable.Line("warning: "+warning))
	}
	if d.LastHour != nil {
		writeTrial(w, d.LastHour)
	}
}

// writeTrial writes what a change would have done to the latest requests.
func writeTrial(w io.Writer, t *recent.Trial) {
	if t.Requests == 0 {
		fmt.Fprintln(w, "\nNo requests have been recorded yet.")
		writeNotJudged(w, t)
		return
	}
	fmt.Fprintf(w, "\n%s requests of %s, from %s to %s:\n", humanize.Comma(t.Requests), instances(t.Instances), t.From.Format(time.RFC3339), t.To.Format(time.RFC3339))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  \tFROM EMPTY COUNTERS\tFROM FULL ONES")
	fmt.Fprintf(table, "  newly denied\t%s\t%s\n", humanize.Comma(t.Newly), humanize.Comma(t.Full.Newly))
	fmt.Fprintf(table, "  no longer denied\t%s\t%s\n", humanize.Comma(t.Freed), humanize.Comma(t.Full.Freed))
	_ = table.Flush()
	if t.Differs > 0 {
		fmt.Fprintf(w, "  For %s of them, the policy in force decides differently now: counters were older, or another policy was in force.\n", humanize.Comma(t.Differs))
	}
	if len(t.Rules) > 0 {
		fmt.Fprintln(table, "\nRULE\tLIMITS FROM\tDENIES NOW\tWOULD DENY\tNEWLY\tNO LONGER")
		for _, r := range t.Rules {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable.Line(r.Rule), printable.Line(r.From), humanize.Comma(r.Before), humanize.Comma(r.After), humanize.Comma(r.Newly), humanize.Comma(r.Freed))
		}
	}
	if len(t.Subjects) > 0 {
		fmt.Fprintln(table, "\nSUBJECT\tRULE\tNEWLY\tNO LONGER")
		for _, s := range t.Subjects {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable.Line(s.Subject), printable.Line(s.Rule), humanize.Comma(s.Newly), humanize.Comma(s.Freed))
		}
	}
	_ = table.Flush()
	writeNotJudged(w, t)
}

func writeNotJudged(w io.Writer, t *recent.Trial) {
	if len(t.NotJudged)+len(t.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range t.NotJudged {
		fmt.Fprintln(w, printable.Line(fmt.Sprintf("Not judged: %s, which needs %s. %s", n.Rule, n.Needs, n.Why)))
	}
	for _, note := range t.Notes {
		fmt.Fprintln(w, printable.Line(note))
	}
}

func instances(n int) string {
	if n == 1 {
		return "one instance"
	}
	return fmt.Sprintf("%d instances", n)
}
