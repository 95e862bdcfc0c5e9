package remote

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/internal/printable"
)

// maxRules bounds the rules that are listed, so that subjects and instances fit on the screen.
const maxRules = 20

// maxUpstreams bounds the upstreams that are listed.
const maxUpstreams = 8

// printSnapshot writes a snapshot as text.
func (s *topSettings) printSnapshot(w io.Writer, now *snapshot) {
	stats := &now.Stats
	fmt.Fprintf(w, "sluice top  %s  %s  %s\n", s.url, stats.At.UTC().Format("15:04:05 UTC"), words.Counted(len(stats.Instances), "instance"))
	fmt.Fprintf(w, "%s\n\n", stats.Headline.Text)
	printRequests(w, &stats.Requests)
	printRules(w, byChange(stats.Rules))
	s.printSubjects(w, now)
	printUpstreams(w, stats)
	printLoads(w, stats)
	printInstances(w, stats)
}

func printRequests(w io.Writer, r *control.Requests) {
	const format = "%-14s%12s%14s%14s%14s\n"
	fmt.Fprintf(w, format, "REQUESTS", "NOW", "MINUTE", "HOUR", "DAY")
	for _, o := range []struct{ outcome, word string }{
		{"allow", "allowed"}, {"deny", "denied"}, {"would_deny", "would deny"}, {"marked", "marked"}, {"delayed", "delayed"}, {"degraded", "without store"},
	} {
		if o.outcome != "allow" && o.outcome != "deny" && r.Day[o.outcome] == 0 {
			continue
		}
		printRow(w, format, o.word, perSecond(r.Rate[o.outcome]), humanize.Comma(int64(r.Minute[o.outcome])),
			humanize.Comma(int64(r.Hour[o.outcome])), humanize.Comma(int64(r.Day[o.outcome])))
	}
}

func printRules(w io.Writer, rules []control.RuleStats) {
	const format = "  %-24s%11s%11s%11s%11s%10s%8s  %s\n"
	fmt.Fprintf(w, "\n"+format, "RULE", "ALLOWED", "DENIED", "WOULD", "USUAL", "SUBJECTS", "NEAR", "LIMIT")
	for i := range rules[:min(len(rules), maxRules)] {
		r := &rules[i]
		usual := "-"
		if r.Usual != nil {
			usual = perSecond(*r.Usual)
		}
		limit := strings.Join(r.Limits, ", ")
		if r.Shadow {
			limit += " (shadow)"
		}
		rate := r.Requests.Rate
		printRow(w, format, printable.Text(r.Rule, 23), perSecond(rate["allow"]+rate["delayed"]+rate["degraded"]+rate["marked"]), perSecond(rate["deny"]), perSecond(rate["would_deny"]),
			usual, humanize.Comma(int64(r.Refused.Hour)), share(r.Near.Hour, total(r.Requests.Hour)), limit)
	}
	if more := len(rules) - maxRules; more > 0 {
		fmt.Fprintf(w, "  and %s more\n", words.Counted(more, "rule"))
	}
}

func (s *topSettings) printSubjects(w io.Writer, now *snapshot) {
	of := "all rules"
	if s.rule != "" {
		of = "rule " + s.rule
	}
	word := map[string]string{"refusals": "DENIED MOST", "traffic": "MOST REQUESTS"}[s.by]
	fmt.Fprintf(w, "\n%s in the last %s, %s\n", word, s.window, of)
	if len(now.Top.Items) == 0 {
		fmt.Fprintln(w, "none")
	}
	for _, i := range now.Top.Items {
		count := humanize.Comma(int64(i.Count))
		if i.Error > 0 {
			count += " ±" + humanize.Comma(int64(i.Error))
		}
		last := "-"
		if i.Last != nil {
			last = ago(now.Stats.At.Sub(*i.Last))
		}
		printRow(w, "%16s  %8s  %-20s  %s\n", count, last, printable.Text(i.Rule, 20), i.Shown)
	}
}

// printUpstreams writes a line for each upstream, with counts of the last minute.
func printUpstreams(w io.Writer, stats *control.Stats) {
	if len(stats.Upstreams) == 0 {
		return // no instance is a gateway
	}
	const format = "%-32s%10s%10s%10s%10s%12s%10s  %s\n"
	fmt.Fprintln(w)
	printRow(w, format, "UPSTREAM", "REQUESTS", "P50", "P99", "USUAL P50", "IN FLIGHT", "5XX", "ERRORS")
	for i := range stats.Upstreams[:min(len(stats.Upstreams), maxUpstreams)] {
		u := &stats.Upstreams[i]
		usual := "-"
		if u.Usual != nil {
			usual = took(u.Usual.P50)
		}
		var failed []string
		for _, kind := range slices.Sorted(maps.Keys(u.Minute.Errors)) {
			failed = append(failed, kind+" "+humanize.Comma(int64(u.Minute.Errors[kind])))
		}
		printRow(w, format, printable.Text(u.Upstream, 31), humanize.Comma(int64(total(u.Minute.Statuses)+total(u.Minute.Errors))),
			took(u.Minute.Took.P50), took(u.Minute.Took.P99), usual, humanize.Comma(int64(u.InFlight)),
			humanize.Comma(int64(u.Minute.Statuses["5xx"])), cmp.Or(strings.Join(failed, ", "), "-"))
	}
	if more := len(stats.Upstreams) - maxUpstreams; more > 0 {
		fmt.Fprintf(w, "and %s more\n", words.Counted(more, "upstream"))
	}
}

// printLoads writes a line for each rule with an automatic limit of requests in flight, with counts of the last
// minute.
func printLoads(w io.Writer, stats *control.Stats) {
	const format = "%-32s%10s%12s%10s%10s%10s  %s\n"
	headed := false
	for i := range stats.Rules {
		l := stats.Rules[i].Load
		if l == nil {
			continue
		}
		if !headed {
			fmt.Fprintln(w)
			printRow(w, format, "LIMIT UNDER WAY", "LIMIT", "IN FLIGHT", "LATENCY", "IDLE", "DENIED", "SHEDS")
			headed = true
		}
		sheds := "-"
		if l.Overloaded != nil {
			sheds = classText(l) + " since " + l.Overloaded.Format("15:04")
		}
		printRow(w, format, printable.Text(stats.Rules[i].Rule, 31), humanize.Comma(int64(l.Limit)), humanize.Comma(int64(l.InFlight)),
			latencyText(l.Latency), latencyText(l.Base), humanize.Comma(int64(total(l.Denied))), sheds)
	}
}

// classText returns the classes of requests that a rule denies, or that a shadow rule would deny.
func classText(l *control.LoadStats) string {
	if len(l.Denied) == 0 {
		return "would shed " + strings.Join(slices.Sorted(maps.Keys(l.WouldDeny)), ", ")
	}
	return strings.Join(slices.Sorted(maps.Keys(l.Denied)), ", ")
}

func latencyText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return took(*seconds)
}

func printInstances(w io.Writer, stats *control.Stats) {
	const format = "%-24s%10s%12s  %-9s%12s%10s%10s%10s%s\n"
	fmt.Fprintln(w)
	printRow(w, format, "INSTANCE", "DECISIONS", "P99", "STORE", "P99", "DOWN", "LOCAL", "KEYS", "")
	policies := map[string]bool{}
	for _, i := range stats.Instances {
		policies[i.Policy] = true
		unavailable, stale := fmt.Sprintf("%d/%d", i.Store.Unavailable, i.Store.Shards), ""
		if i.Store.Kind == "memory" {
			unavailable = "-"
		}
		if i.Stale {
			stale = "  no data for " + ago(stats.At.Sub(i.Seen))
		}
		printRow(w, format, printable.Text(i.Name, 23), humanize.Comma(int64(i.Took.Count)), took(i.Took.P99),
			i.Store.Kind, took(i.Store.Took.P99), unavailable, humanize.Comma(int64(i.Store.Local)), humanize.Comma(int64(i.Store.Keys)), stale)
	}
	if len(policies) > 1 {
		fmt.Fprintln(w, "Instances have different policies.")
	}
}

// printRow writes cells on one line. The cells may contain any characters.
func printRow(w io.Writer, format string, cells ...string) {
	all := make([]any, len(cells))
	for i, c := range cells {
		all[i] = printable.Line(c)
	}
	line := fmt.Sprintf(strings.TrimSuffix(format, "\n"), all...)
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

// perSecond returns a rate per second as text.
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0/s"
	case rate < 0.1:
		return "<0.1/s"
	case rate < 10:
		return strconv.FormatFloat(rate, 'f', 1, 64) + "/s"
	}
	return humanize.Comma(int64(math.Round(rate))) + "/s"
}

func total(c map[string]uint64) (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

func share(part, all uint64) string {
	if all == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(part)/float64(all), 'f', 0, 64) + " %"
}

// took formats a number of seconds as a duration.
func took(seconds float64) string {
	if seconds == 0 {
		return "-"
	}
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Millisecond:
		d = d.Round(time.Microsecond)
	case d < time.Second:
		d = d.Round(100 * time.Microsecond)
	default:
		d = d.Round(10 * time.Millisecond)
	}
	return d.String()
}

// ago returns a duration as text, in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}
