package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/sluicehq/sluice/internal/adminapi"
)

// topScreen is what top shows. Its lines are a function of it.
type topScreen struct {
	now           seenNow
	choice        topChoice
	order         int    // of topOrders
	source        string // where it is asked
	width, height int    // without a height, all lines are shown
	plain         bool   // without keys and colours
	coloured      bool
}

// Styles of a terminal, which always stand beside a word that says the same.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	yellow = "33"
	green  = "32"
	upside = "7"
)

// line is one of the screen, of which each character that shows takes a place.
type line struct {
	screen *topScreen
	text   strings.Builder
	room   int
}

func (s *topScreen) line() *line { return &line{screen: s, room: s.width} }

// add adds a text, as far as there is room, in a style. It is the only way by which texts get onto
// the screen, so that nothing in them moves or hides anything.
func (l *line) add(style, text string) *line {
	text = plainText(text)
	if n := utf8.RuneCountInString(text); n > l.room {
		text = string([]rune(text)[:l.room])
	}
	l.room -= utf8.RuneCountInString(text)
	if colour := len(style) > 1; style == "" || text == "" || l.screen.plain || colour && !l.screen.coloured {
		l.text.WriteString(text)
	} else {
		l.text.WriteString("\x1b[" + style + "m" + text + "\x1b[0m")
	}
	return l
}

func (l *line) addf(style, format string, args ...any) *line {
	return l.add(style, fmt.Sprintf(format, args...))
}

// String ends without spaces.
func (l *line) String() string { return strings.TrimRight(l.text.String(), " ") }

// lines are all of the screen, of which there are no more than fit.
func (s *topScreen) lines() []string {
	head := s.head()
	var foot, instances []string
	if !s.plain {
		foot = []string{s.help()}
	}
	if s.now.Stats == nil || s.now.Stats.At.IsZero() {
		return s.fit(head, foot)
	}
	instances = s.instances()
	rules, subjects := s.ruleTable(), s.subjects()
	if s.height > 0 {
		// Half of what is left is for the rules, and what one does not need the other has.
		left := max(0, s.height-len(head)-len(foot)-len(instances)-3)
		forRules := max(min(len(rules), left/2), min(len(rules), left-len(subjects)))
		rules, subjects = rules[:forRules], subjects[:min(len(subjects), max(0, left-forRules))]
	}
	body := slices.Concat(head, []string{""}, rules, []string{""}, subjects, []string{""}, instances)
	return s.fit(body, foot)
}

// fit cuts what does not fit, and puts foot at the bottom.
func (s *topScreen) fit(body, foot []string) []string {
	if s.height <= 0 {
		return append(body, foot...)
	}
	room := max(0, s.height-len(foot))
	body = body[:min(len(body), room)]
	for len(body) < room {
		body = append(body, "")
	}
	return append(body, foot...)[:min(s.height, room+len(foot))]
}

// head is the sentence and the rates.
func (s *topScreen) head() []string {
	title := s.line().add(bold, "sluice top").addf("", "  %s", s.source)
	if s.now.err != nil {
		return append([]string{title.String(), ""}, s.wrapped(red, "No answer: "+s.now.err.Error())...)
	}
	if s.now.Stats == nil {
		return []string{title.String(), "", "Asking …"}
	}
	stats := s.now.Stats
	title.addf("", "  %s  %s", stats.At.UTC().Format("15:04:05 UTC"), counted(len(stats.Instances), "instance"))
	style := map[string]string{"good": green, "bad": red}[stats.Headline.Level]
	out := append([]string{title.String()}, s.wrapped(cmp.Or(style, bold), stats.Headline.Text)...)
	out = append(out, "", s.line().addf(dim, "%-14s%12s%14s%14s%14s", "REQUESTS", "NOW", "MINUTE", "HOUR", "DAY").String())
	for _, o := range []struct{ outcome, word, style string }{
		{"allow", "allowed", ""}, {"deny", "refused", red}, {"would_deny", "would refuse", yellow}, {"delayed", "delayed", ""}, {"degraded", "without store", yellow},
	} {
		r := &stats.Requests
		if o.outcome != "allow" && o.outcome != "deny" && r.Day[o.outcome] == 0 {
			continue
		}
		style := o.style
		if r.Minute[o.outcome] == 0 {
			style = ""
		}
		out = append(out, s.line().addf(style, "%-14s%12s%14s%14s%14s", o.word, perSecond(r.Rate[o.outcome]),
			humanize.Comma(int64(r.Minute[o.outcome])), humanize.Comma(int64(r.Hour[o.outcome])), humanize.Comma(int64(r.Day[o.outcome]))).String())
	}
	return out
}

// wrapped breaks a text between words.
func (s *topScreen) wrapped(style, text string) (out []string) {
	for words := strings.Fields(text); len(words) > 0; {
		n, used := 0, 0
		for n < len(words) && (n == 0 || used+1+utf8.RuneCountInString(words[n]) <= s.width) {
			used += 1 + utf8.RuneCountInString(words[n])
			n++
		}
		out = append(out, s.line().add(style, strings.Join(words[:n], " ")).String())
		words = words[n:]
	}
	return out
}

// rules are those of the stats, in the order that is chosen.
func (s *topScreen) rules() []adminapi.RuleStats {
	if s.now.Stats == nil {
		return nil
	}
	all := slices.Clone(s.now.Stats.Rules)
	slices.SortStableFunc(all, func(a, b adminapi.RuleStats) int { return topOrders[s.order].less(&a, &b) })
	return all
}

func (s *topScreen) ruleTable() []string {
	const format = "%s %-24s%11s%11s%11s%11s%10s%8s  %s"
	out := []string{s.line().addf(dim, format, " ", "RULE", "ALLOWED", "REFUSED", "WOULD", "USUAL", "SUBJECTS", "NEAR", "LIMIT").String()}
	for _, r := range s.rules() {
		mark, style, usual := " ", "", "-"
		if r.Rule == s.choice.rule {
			mark, style = ">", upside
		}
		if r.Usual != nil {
			usual = perSecond(*r.Usual)
		}
		rate := r.Requests.Rate
		limit := strings.Join(r.Limits, ", ")
		if r.Shadow {
			limit += " (shadow)"
		}
		passed := rate["allow"] + rate["delayed"] + rate["degraded"]
		if style == "" && rate["deny"] > 0 {
			style = red
		}
		out = append(out, s.line().addf(style, format, mark, cut(r.Rule, 23), perSecond(passed), perSecond(rate["deny"]), perSecond(rate["would_deny"]),
			usual, humanize.Comma(int64(r.Refused.Hour)), share(r.Near.Hour, total(r.Requests.Hour)), limit).String())
	}
	return out
}

func (s *topScreen) subjects() []string {
	of := "all rules"
	if s.choice.rule != "" {
		of = "rule " + s.choice.rule
	}
	word := map[string]string{"refusals": "REFUSED MOST", "traffic": "ASKED MOST"}[s.choice.by]
	out := []string{s.line().addf(dim, "%s in the last %s, %s", word, s.choice.window, of).String()}
	if s.now.asked != s.choice || s.now.Top == nil {
		return append(out, "Asking …")
	}
	if len(s.now.Top.Items) == 0 {
		return append(out, "nobody")
	}
	for _, i := range s.now.Top.Items {
		count := humanize.Comma(int64(i.Count))
		if i.Error > 0 {
			count += " ±" + humanize.Comma(int64(i.Error))
		}
		last := "-"
		if i.Last != nil {
			last = ago(s.now.Stats.At.Sub(*i.Last))
		}
		out = append(out, s.line().addf("", "%16s  %8s  %-20s  %s", count, last, cut(i.Rule, 20), i.Shown).String())
	}
	return out
}

func (s *topScreen) instances() []string {
	out := []string{s.line().addf(dim, "%-24s%10s%12s  %-9s%12s%10s%10s%10s", "INSTANCE", "DECISIONS", "P99", "STORE", "P99", "AWAY", "LOCAL", "KEYS").String()}
	all := s.now.Stats.Instances
	policies := map[string]bool{}
	for _, i := range all {
		policies[i.Policy] = true
		away, style := fmt.Sprintf("%d/%d", i.Store.Away, i.Store.Shards), ""
		if i.Store.Kind == "memory" {
			away = "-"
		}
		if i.Store.Away > 0 || i.Stale {
			style = red
		}
		l := s.line().addf(style, "%-24s%10s%12s  %-9s%12s%10s%10s%10s", cut(i.Name, 23), humanize.Comma(int64(i.Took.Count)), took(i.Took.P99),
			i.Store.Kind, took(i.Store.Took.P99), away, humanize.Comma(int64(i.Store.Local)), humanize.Comma(int64(i.Store.Keys)))
		if i.Stale {
			l.addf(style, "  no numbers for %s", ago(s.now.Stats.At.Sub(i.Seen)))
		}
		out = append(out, l.String())
	}
	if len(policies) > 1 {
		out = append(out, s.line().add(red, "Not all instances have the same policy.").String())
	}
	return out
}

func (s *topScreen) help() string {
	by := map[string]string{"refusals": "refused most", "traffic": "asked most"}[s.choice.by]
	return s.line().addf(dim, "q quit   s sort: %s   r ↑↓ rule: %s   b %s   ←→ %s", topOrders[s.order].name, cmp.Or(s.choice.rule, "all"), by, s.choice.window).String()
}

// perSecond writes a rate.
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

func total(c adminapi.Counts) (n uint64) {
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

// took writes seconds.
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

// ago writes how long something is past, in its largest unit.
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

// cut shortens a text to n characters.
func cut(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return text
}
