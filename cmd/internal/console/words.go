package console

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/limitpage"
	"github.com/sluicehq/sluice/policy"
)

// limitWords returns a limit in words, with the algorithm if it is not the default.
func limitWords(text, algorithm string) string {
	out := limitpage.InWords(text, algorithm)
	if strings.HasPrefix(algorithm, "sliding") {
		out += ", " + strings.ReplaceAll(algorithm, "_", " ")
	}
	return out
}

// ruleWords describes the effect of a rule.
func ruleWords(r *policy.Rule) string {
	switch {
	case r.Block:
		return "denies all matching requests"
	case r.Exempt:
		return "allows all matching requests"
	case r.Share.Of != "":
		return limitsWords(r.LimitTexts(), r.Algorithm) + ", shared"
	}
	switch {
	case r.OnlyClassifies():
		return "class " + r.Class
	case r.InFlight.Auto:
		return autoWords(&r.InFlight)
	case r.InFlight.Most > 0:
		return inFlightWords(r.InFlight.Most)
	}
	if r.Distinct.Of != "" {
		return limitpage.DistinctInWords(r.Distinct.Of, r.Distinct.Limit)
	}
	return limitsWords(r.LimitTexts(), r.Algorithm)
}

// autoWords describes an automatic limit of requests in flight.
func autoWords(f *policy.InFlight) string {
	words := "as many under way as the upstream can handle"
	if f.Least > 0 {
		words += ", at least " + humanize.Comma(f.Least)
	}
	if f.Most > 0 {
		words += ", at most " + humanize.Comma(f.Most)
	}
	return words
}

func inFlightWords(n int64) string { return humanize.Comma(n) + " under way at once" }

func limitsWords(texts []string, algorithm string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = limitWords(text, algorithm)
	}
	return strings.Join(all, " and ")
}

// keyWords describes the key of a rule.
func keyWords(r *policy.Rule) string {
	parts := countedParts(r)
	if len(parts) == 0 {
		return "nothing: all requests share one count"
	}
	return strings.Join(parts, " + ")
}

// matchWords describes the requests to which a rule applies.
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
	for _, name := range slices.Sorted(maps.Keys(r.Body)) {
		all = append(all, "body "+name+": "+r.Body[name])
	}
	for _, c := range r.Clients {
		all = append(all, "from "+c)
	}
	for _, c := range r.NotClients {
		all = append(all, "not from "+c)
	}
	return all
}

// overrideWords describes the effect of an override.
func overrideWords(o *policy.Override) string {
	switch {
	case o.Block:
		return "blocked"
	case o.Exempt:
		return "not limited"
	case o.InFlight > 0:
		return inFlightWords(o.InFlight)
	}
	return limitsWords(o.LimitTexts(), "")
}

// untilWords describes an end, as in "until 24 Nov 2026, 00:00 UTC" or "for good".
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

// timeWords formats a time for a sentence, in UTC. Pages show times outside sentences in the reader's time zone.
func timeWords(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") }
