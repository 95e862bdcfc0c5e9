package remote

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/internal/printable"
)

// WriteTrial writes the effect of a change on the latest requests.
func WriteTrial(w io.Writer, t *recent.Trial) {
	if t.Requests == 0 {
		fmt.Fprintln(w, "\nNo requests are recorded yet.")
		writeNotJudged(w, t)
		return
	}
	fmt.Fprintf(w, "\n%s of %s, from %s to %s:\n", words.Counted(t.Requests, "request"), instances(t.Instances), t.From.Format(time.RFC3339), t.To.Format(time.RFC3339))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "  newly denied\t%s\n", atMost(t.Newly, t.Most.Newly))
	fmt.Fprintf(table, "  no longer denied\t%s\n", atMost(t.Freed, t.Most.Freed))
	_ = table.Flush()
	if t.Change != t.Most {
		fmt.Fprintln(w, "  The trial counts from zero. Real counters may have been partly used: the upper bounds assume used-up limits.")
	}
	if t.Differs > 0 {
		fmt.Fprintf(w, "  In the trial, the policy in force decides %s of them differently from what happened: counters were older or shared, or another policy was in force.\n", humanize.Comma(t.Differs))
	}
	if len(t.Rules) > 0 {
		fmt.Fprintln(table, "\nRULE\tLIMITS FROM\tDENIES NOW\tWOULD DENY\tNEWLY DENIED\tNO LONGER")
		for _, r := range t.Rules {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", printable.Line(r.Rule), printable.Line(r.From), humanize.Comma(r.Before), humanize.Comma(r.After), humanize.Comma(r.Newly), humanize.Comma(r.Freed))
		}
	}
	_ = table.Flush()
	if slices.ContainsFunc(t.Rules, func(r recent.RuleTrial) bool { return r.After-r.Before != r.Newly-r.Freed }) {
		fmt.Fprintln(w, "The first two numbers include shadows and requests that another rule denies as well; the last two do not.")
	}
	if len(t.Subjects) > 0 {
		fmt.Fprintln(table, "\nSUBJECT\tRULE\tNEWLY DENIED\tNO LONGER")
		for _, s := range t.Subjects {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable.Line(s.Subject), printable.Line(s.Rule), humanize.Comma(s.Newly), humanize.Comma(s.Freed))
		}
	}
	_ = table.Flush()
	writeNotJudged(w, t)
}

// atMost formats a count, followed by its approximate upper bound if that is higher.
func atMost(n, most int64) string {
	if n == most {
		return humanize.Comma(n)
	}
	return humanize.Comma(n) + " (at most about " + humanize.Comma(most) + ")"
}

func writeNotJudged(w io.Writer, t *recent.Trial) {
	if len(t.NotJudged)+len(t.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, n := range t.NotJudged {
		fmt.Fprintln(w, printable.Line(fmt.Sprintf("Not tried: %s, which needs %s. %s", n.Rule, n.Needs, n.Why)))
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
