package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// print writes an explanation. The explanation of a gateway may contain texts from clients.
func (q *checkSettings) print(out io.Writer, r *http.Request, e *control.Explanation) {
	fmt.Fprintf(out, "%s %s from %s%s\n\n", r.Method, r.URL, printable.Line(e.Client), tierText(e.Tier))
	for i := range e.Rules {
		q.printRule(out, &e.Rules[i])
	}
	for _, rule := range e.Disabled {
		fmt.Fprintf(out, "- %-16s disabled in the database\n", printable.Line(rule))
	}
	printDecision(out, e)
	printResponse(out, e, q.all)
}

// tierText returns the tier of the request and its source, or "" if no rule depends on a tier.
func tierText(t *control.TierExplanation) string {
	switch {
	case t == nil:
		return ""
	case t.Name == "":
		return ", no tier"
	}
	from := t.From
	if t.From == "subjects" {
		from += inSource(t.Source) + t.Terms
	}
	return printable.Line(fmt.Sprintf(", tier %s from %s", t.Name, from))
}

func (q *checkSettings) printRule(out io.Writer, rule *control.RuleExplanation) {
	mark := "-"
	if rule.Applies {
		mark = "*"
	}
	line := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  %-16s %-6s %s\n", "", what, printable.Line(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(out, "%s %-16s %s%s\n", mark, printable.Line(rule.Rule), printable.Line(rule.Why), inSource(rule.Source))
	if rule.Load != nil {
		line("key", "%s", rule.Key)
		printLoad(line, rule.Load)
	}
	if len(rule.Limits) == 0 {
		return
	}
	line("key", "%s", rule.Key)
	for i := range rule.Limits {
		l := &rule.Limits[i]
		from := l.From + inSource(l.Source) + rule.OverrideTerms()
		if inFlight(l) {
			line("limit", "%s, from the %s", l.Limit, from)
		} else {
			line("limit", "%s, %s, from the %s", l.Limit, l.Algorithm, from)
		}
		line("result", "%s", verdict(l, rule.Enforced))
		switch {
		case !q.all:
		case inFlight(l):
			line("after", "%d of %d permits free while it runs", l.After.Remaining, l.Capacity)
		default:
			line("after", "%s of %s left, full again in %v", l.USD.Text(l.After.Remaining), l.Text(l.Capacity), command.RoundUp(l.After.FullIn.Duration()))
		}
	}
	if rule.Share != "" {
		line("share", "%s", rule.Share)
	}
	if rule.Then != "" {
		line("then", "%s", rule.Then)
	}
	if how, ok := consistencyText[rule.Consistency]; ok {
		line("shared", "%s", how)
	}
	onError, _ := sluice.ParseOnError(rule.OnError)
	line("outage", "%s", outageText(policy.Outage{OnError: onError, Why: rule.OnErrorWhy}))
}

// printLoad writes the state of an automatic limit of requests in flight.
func printLoad(line func(what, format string, args ...any), l *control.LoadExplanation) {
	result := "allowed: class " + l.Class
	switch {
	case !l.Known:
		line("limit", "in_flight auto: unknown until requests show the latency of the upstream")
	case l.Base != nil && l.Latency != nil:
		line("limit", "in_flight auto: %d of %d under way; latency %v, idle %v", l.InFlight, l.Limit, roundLatency(*l.Latency), roundLatency(*l.Base))
	default:
		line("limit", "in_flight auto: %d of %d under way", l.InFlight, l.Limit)
	}
	if !l.Allowed {
		result = "denied: the upstream is overloaded for class " + l.Class
	}
	if l.Shadow {
		result += " (shadow: not enforced)"
	}
	line("result", "%s", result)
}

// roundLatency converts seconds to a duration that is rounded for display.
func roundLatency(seconds float64) time.Duration {
	d := time.Duration(seconds * float64(time.Second))
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}

// inSource returns the source of a rule or an override in parentheses, or "" if there is only one source.
func inSource(source string) string {
	if source == "" {
		return ""
	}
	return " (" + source + ")"
}

// inFlight reports whether a limit counts requests in flight.
func inFlight(l *control.LimitExplanation) bool { return l.Algorithm == "in_flight" }

// verdict describes whether the request fits a limit, and why.
func verdict(l *control.LimitExplanation, enforced string) string {
	cost, left := l.USD.Text(l.Cost), l.Text(l.Before.Remaining)
	s := fmt.Sprintf("allowed: costs %s of %s", cost, left)
	wait := l.RetryAfter.Duration()
	switch {
	case !l.Allowed && wait == sluice.Never:
		s = fmt.Sprintf("denied: a cost of %s can never fit", l.Text(l.Cost))
	case l.Locked:
		s = fmt.Sprintf("denied: locked out, for another %v", command.RoundUp(wait))
	case inFlight(l) && l.Allowed:
		s = fmt.Sprintf("allowed: %d of %d permits are free", l.Before.Remaining, l.Capacity)
	case inFlight(l):
		s = fmt.Sprintf("denied: all %d permits are taken", l.Capacity)
	case !l.Allowed:
		s = fmt.Sprintf("denied: costs %s of %s, retry in %v", cost, left, command.RoundUp(wait))
	case l.Delay > 0:
		s += fmt.Sprintf(", delayed by %v", command.RoundUp(l.Delay.Duration()))
	}
	switch {
	case l.Marks && !l.Allowed:
		return "marked: " + strings.TrimPrefix(s, "denied: ")
	case l.Marks:
	case l.Shadow && enforced != "":
		s += " (shadow: enforced for " + enforced + ", not for this subject)"
	case l.Shadow:
		s += " (shadow: not enforced)"
	}
	return s
}

func printDecision(out io.Writer, e *control.Explanation) {
	switch {
	case e.Exempt:
		fmt.Fprintln(out, "\nallowed: exempt, not counted")
	case e.Blocked != "":
		fmt.Fprintf(out, "\ndenied: rule %q blocks the request\n", e.Blocked)
	case e.Overloaded != "":
		fmt.Fprintf(out, "\ndenied: the upstream is overloaded, by rule %q\n", e.Overloaded)
	case e.Missing != "":
		lacks := "it lacks " + e.Missing
		if what := (&policy.Decision{Missing: e.Missing}).Ambiguous(); what != "" {
			lacks = "its " + what + " can be read in more than one way"
		}
		fmt.Fprintf(out, "\ndenied: %s\n", printable.Line(lacks))
	case e.Allowed && e.Delay > 0:
		fmt.Fprintf(out, "\nallowed after %v\n", command.RoundUp(e.Delay.Duration()))
	case e.Allowed:
		fmt.Fprintln(out, "\nallowed")
	case e.RetryAfter < 0:
		fmt.Fprintln(out, "\ndenied: retries cannot succeed")
	default:
		fmt.Fprintf(out, "\ndenied: retry in %v\n", command.RoundUp(e.RetryAfter.Duration()))
	}
}

// printResponse writes the response if the policy sets it, or if the parameter all is true.
func printResponse(out io.Writer, e *control.Explanation, all bool) {
	r := &e.Response
	switch {
	case !r.Own && !all:
		return
	case e.Allowed && len(r.Header) == 0:
		fmt.Fprintln(out, "the response has no fields of a limit")
		return
	case e.Allowed:
		fmt.Fprint(out, "the response has:\n\n")
	default:
		fmt.Fprintf(out, "answered with %d %s:\n\n", r.Status, http.StatusText(r.Status))
	}
	var header strings.Builder
	_ = r.Header.Write(&header)
	fmt.Fprint(out, strings.ReplaceAll(header.String(), "\r\n", "\n"))
	if !e.Allowed {
		fmt.Fprintf(out, "\n%s\n", r.Body)
	}
}
