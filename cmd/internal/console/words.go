package console

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// limitWords is a limit as people say it: "100 a minute, 20 at once". The algorithm is said where
// it is not the usual one.
func limitWords(text, algorithm string) string {
	l, err := sluice.ParseLimit(text)
	if err != nil {
		return text
	}
	out := humanize.Comma(l.Count) + " " + periodWords(l)
	if l.Burst > 0 && l.Burst != l.Count {
		out += ", " + humanize.Comma(l.Burst) + " at once"
	}
	switch algorithm {
	case "", "token_bucket":
	case "fixed_window":
		if l.MonthDay == 0 {
			out += ", in fixed windows"
		}
	case "leaky_bucket":
		out += ", queued"
	default:
		out += ", " + strings.ReplaceAll(algorithm, "_", " ")
	}
	return out
}

func periodWords(l sluice.Limit) string {
	switch {
	case l.MonthDay > 1:
		return "a month from the " + strconv.Itoa(l.MonthDay) + ordinal(l.MonthDay)
	case l.MonthDay == 1:
		return "a month"
	case l.Period == time.Second:
		return "a second"
	case l.Period == time.Minute:
		return "a minute"
	case l.Period == time.Hour:
		return "an hour"
	case l.Period == 24*time.Hour:
		return "a day"
	}
	return "in " + lengthWords(l.Period)
}

func ordinal(n int) string {
	switch {
	case n/10 == 1:
		return "th"
	case n%10 == 1:
		return "st"
	case n%10 == 2:
		return "nd"
	case n%10 == 3:
		return "rd"
	}
	return "th"
}

// ruleWords is what a rule does, in words.
func ruleWords(r *policy.Rule) string {
	switch {
	case r.Block:
		return "refuses everything that matches"
	case r.Exempt:
		return "lets everything pass that matches"
	case r.Share.Of != "":
		return limitsWords(r.Share.Of, nil, r.Algorithm) + ", shared"
	}
	if r.InFlight > 0 {
		return inFlightWords(r.InFlight)
	}
	return limitsWords(r.Limit, r.Limits, r.Algorithm)
}

func inFlightWords(n int64) string { return humanize.Comma(n) + " under way at once" }

func limitsWords(one string, several []string, algorithm string) string {
	if one != "" {
		several = []string{one}
	}
	all := make([]string, len(several))
	for i, text := range several {
		all[i] = limitWords(text, algorithm)
	}
	return strings.Join(all, " and ")
}

// keyWords is by what a rule tells requests apart.
func keyWords(r *policy.Rule) string {
	parts := countedParts(r)
	if len(parts) == 0 {
		return "nothing: all share one count"
	}
	return strings.Join(parts, " + ")
}

// matchWords is what a rule applies to.
func matchWords(r *policy.Rule) []string {
	all := append([]string(nil), r.Match...)
	for _, h := range r.Hosts {
		all = append(all, "host "+h)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		all = append(all, name+": "+r.Headers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		all = append(all, name+" = "+r.Attributes[name])
	}
	for _, c := range r.Clients {
		all = append(all, "from "+c)
	}
	for _, c := range r.NotClients {
		all = append(all, "not from "+c)
	}
	return all
}

// overrideWords is what an override makes of a limit.
func overrideWords(o *policy.Override) string {
	switch {
	case o.Block:
		return "blocked"
	case o.Exempt:
		return "not limited"
	case o.InFlight > 0:
		return inFlightWords(o.InFlight)
	}
	return limitsWords(o.Limit, o.Limits, "")
}

// untilWords is when something ends: "until 24 Nov 2026, 00:00 UTC", or "for good".
func untilWords(text string) string {
	if text == "" {
		return "for good"
	}
	t, err := policy.ParseUntil(text)
	if err != nil {
		return "until " + text
	}
	return "until " + timeWords(t)
}

// timeWords is a time for sentences; pages show others in the zone of the reader.
func timeWords(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") }

// lengthWords is a length of time, rounded to two units: "2 days 3 hours", "45 seconds".
func lengthWords(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	units := []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}}
	for i, u := range units {
		if d < u.length {
			continue
		}
		out := several(int64(d/u.length), u.name)
		if i+1 < len(units) {
			if rest := (d % u.length) / units[i+1].length; rest > 0 {
				out += " " + several(int64(rest), units[i+1].name)
			}
		}
		return out
	}
	return "no time"
}

// several is a number of things: "1 hour", "2 hours".
func several(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(n) + " " + what + "s"
}
