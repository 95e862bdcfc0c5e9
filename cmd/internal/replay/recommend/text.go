package recommend

import (
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/words"
)

// exactPercent formats a share with all its digits.
func exactPercent(share *big.Rat) string {
	x := new(big.Rat).Mul(share, big.NewRat(100, 1))
	s := strings.TrimRight(x.FloatString(12), "0")
	return strings.TrimSuffix(s, ".") + "%"
}

func ratio(n, of int64) string {
	if of == 0 {
		return "none"
	}
	return percent(float64(n) / float64(of))
}

// words returns the limit as in a policy, with its algorithm.
func (r *Rule) words() string {
	return r.Limit + ", " + r.Algorithm
}

// promise describes the promise of the limit in sentences.
func (r *Rule) promise(out *Result) []string {
	var lines []string
	if r.Promised {
		lines = append(lines, fmt.Sprintf("With %s confidence, at most %s of all subjects exceed the limit in a time as long as the log: the limit was made from %s, of which %s may exceed it.",
			sureness(r.Confidence), out.Share, words.Counted(r.N, "subject"), humanize.Comma(int64(r.J))))
	} else {
		lines = append(lines, fmt.Sprintf("CANNOT PROMISE %s with %s confidence: that needs %s, but the log has only %s, enough to promise %s.",
			out.Share, out.Confidence, words.Counted(out.Needed, "subject"), humanize.Comma(int64(r.Subjects)), percent(r.Attainable)))
	}
	lines = append(lines, fmt.Sprintf("In this log, %s of %s exceed the limit, and these made %s of the requests.", humanize.Comma(int64(r.Above)), words.Counted(r.Subjects, "subject"), ratio(r.RequestsAbove, r.Requests)))
	if r.Promised {
		lines = append(lines, fmt.Sprintf("On a day with %s, at most twice that share of them will exceed it, with %s confidence.", words.Counted(r.NextSubjects, "subject"), sureness(r.NextDay)))
	}
	return lines
}

func (r *Rule) bursts() string {
	var parts []string
	for _, q := range r.Bursts {
		name := percent(q.Share)
		if q.Share == 1 {
			name = "all"
		}
		parts = append(parts, name+" "+humanize.Comma(q.Burst))
	}
	return strings.Join(parts, ", ")
}

func (r *Rule) neighbors(window string) string {
	var parts []string
	for _, n := range r.Neighbors {
		parts = append(parts, fmt.Sprintf("%s (%.0f in %s)", n.Limit, n.Harm, window))
	}
	return strings.Join(parts, ", ")
}

func (c *Convention) words(window string) string {
	return fmt.Sprintf("%s, a little above the p99 of %d/second, with a burst of 10 s: exceeded by %s, and allows up to %.0f in %s", c.Limit, c.P99, words.Counted(c.Above, "subject"), c.Harm, window)
}

// WriteText writes the result for people.
func (r *Result) WriteText(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s from %s to %s (%s), by %s.\n", words.Counted(r.Requests, "request"), r.From.Format(time.DateTime), r.To.Format("2006-01-02 15:04:05 MST"), words.Span(r.To.Sub(r.From)), r.Key)
	fmt.Fprintf(b, "Requested: each rule denies at most %s of the subjects and of the requests, with %s confidence, and allows a single subject as little as possible in %s.\n", r.Share, r.Confidence, r.Window)
	for _, n := range r.Notes {
		fmt.Fprintf(b, "! %s\n", n)
	}
	if p := r.Replay; p != nil {
		fmt.Fprintf(b, "\n%s", p.total(len(r.Aside) > 0))
		switch {
		case r.Sampled > 0:
			b.WriteString(" Only a sample of the subjects was measured, so these percentages are estimates.\n")
		case p.Kept && slices.ContainsFunc(r.Rules, func(r Rule) bool { return !r.Promised }):
			b.WriteString(" In this log, no rule denies more than was requested, but NOT EVERY RULE CAN PROMISE THAT: see the rules below.\n")
		case p.Kept:
			b.WriteString(" In this log, every rule keeps the promise.\n")
		default:
			b.WriteString(" THE PROMISE IS NOT KEPT: see the rules below.\n")
		}
	}
	if len(r.Aside) > 0 {
		fmt.Fprintf(b, "\nSet aside, since they look like abuse: %s with %s of the requests. The limits are made from the other subjects.\n", words.Counted(len(r.Aside), "subject"), ratio(r.asideRequests(), r.Requests))
		t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for i, a := range r.Aside {
			if i == 20 {
				fmt.Fprintf(t, "  and %d more\n", len(r.Aside)-i)
				break
			}
			fmt.Fprintf(t, "  %s\t%s\tburst %s\t%s\n", a.Key, words.Counted(a.Requests, "request"), humanize.Comma(a.Burst), a.Why)
		}
		_ = t.Flush()
	}
	for i := range r.Rules {
		if r.Rules[i].Limit != "" {
			r.Rules[i].write(b, r)
		}
	}
	if few := r.few(); few != "" {
		fmt.Fprintf(b, "\nNo limit for %s: with fewer than %d subjects, not even a share of 1%% can be promised.\n", few, leastSubjects)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unit returns " tokens" if the limits are in tokens, or "" for requests. It is written after a number.
func (r *Result) unit() string {
	if r.Tokens != "" {
		return " tokens"
	}
	return ""
}

// asideRequests returns the number of requests of the subjects that are set aside.
func (r *Result) asideRequests() (n int64) {
	for i := range r.Aside {
		n += r.Aside[i].Requests
	}
	return n
}

// total describes what the whole policy denies in the log: requests first, then subjects.
func (p *Replay) total(aside bool) string {
	all := p.Refused + p.AsideRefused
	s := fmt.Sprintf("Replayed on the same log: the whole policy denies %s (%s) of %s", humanize.Comma(all), ratio(all, p.Requests), words.Counted(p.Requests, "request"))
	if !aside {
		return fmt.Sprintf("%s, of %s.", s, words.Counted(p.Subjects, "subject"))
	}
	return fmt.Sprintf("%s: %s (%s) of %s set aside, and %s (%s) of %s of the others.", s,
		humanize.Comma(p.AsideRefused), ratio(p.AsideRefused, p.Requests), words.Counted(p.AsideSubjects, "subject"),
		humanize.Comma(p.Refused), ratio(p.Refused, p.Requests), words.Counted(p.Subjects, "subject"))
}

// few lists the routes with too few subjects for a limit.
func (r *Result) few() string {
	var parts []string
	for i := range r.Rules {
		if rule := &r.Rules[i]; rule.Limit == "" {
			parts = append(parts, fmt.Sprintf("%s (%s)", rule.matches(), humanize.Comma(int64(rule.Subjects))))
		}
	}
	return strings.Join(parts, ", ")
}

func (r *Rule) matches() string {
	if r.Match == "" {
		return "every request"
	}
	return r.Match
}

func (r *Rule) write(b *strings.Builder, out *Result) {
	fmt.Fprintf(b, "\n%s (%s): %s\n", r.Name, r.matches(), r.words())
	for _, line := range r.promise(out) {
		fmt.Fprintf(b, "  %s\n", line)
	}
	fmt.Fprintf(b, "  A subject is allowed at most %.0f%s in %s. Bursts that a share of the subjects does not exceed: %s.\n", r.Harm, out.unit(), out.Window, r.bursts())
	if r.WithAside > 0 {
		fmt.Fprintf(b, "  With the subjects set aside, the burst would be %s.\n", humanize.Comma(r.WithAside))
	}
	if len(r.Neighbors) > 0 {
		fmt.Fprintf(b, "  Other limits for the same promise: %s.\n", r.neighbors(out.Window))
	}
	if r.Convention != nil {
		fmt.Fprintf(b, "  Rule of thumb: %s.\n", r.Convention.words(out.Window))
	}
	if out.Replay != nil {
		p := out.Replay.Rules[r.Name]
		fmt.Fprintf(b, "  Replayed: %s and %s are denied, and --share permits %s and %s", words.Counted(p.Subjects, "subject"), words.Counted(p.Refused, "request"), humanize.Comma(p.MaySubjects), humanize.Comma(p.MayRefuse))
		if p.AsideSubjects > 0 {
			fmt.Fprintf(b, "; in addition, %s and %s of those set aside", words.Counted(p.AsideSubjects, "subject"), words.Counted(p.AsideRefused, "request"))
		}
		b.WriteString(".\n")
	}
	for _, f := range r.Forward {
		fmt.Fprintf(b, "  %s: a limit learned from %s of the days before (%s) was exceeded by %d of %d (%s).", f.Day, words.Counted(f.From, "subject"), f.Limit, f.Above, f.Subjects, ratio(int64(f.Above), int64(f.Subjects)))
		if f.Within {
			b.WriteString(" That is within twice the promise.\n")
		} else {
			fmt.Fprintf(b, " That is more than twice the promise: %s.\n", f.Why)
		}
	}
}
