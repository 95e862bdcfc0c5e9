package console

import (
	"net/url"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/telemetry"
)

// asked is the filter of the first page.
type asked struct {
	Rule string
	// Window is how far the numbers and the lists of denied subjects look back.
	Window telemetry.Window
	Day    bool // the chart shows a day instead of an hour
	// From and To select a part of the chart. The tables of rules and of denied subjects are restricted to this part.
	// Both are zero for the whole chart.
	From, To time.Time
}

func askedOf(q url.Values, now time.Time) asked {
	a := asked{Rule: q.Get("rule"), Window: telemetry.Hour, Day: q.Get("span") == "day"}
	for w := range telemetry.Window(telemetry.Windows) {
		if q.Get("window") == w.String() {
			a.Window = w
		}
	}
	from, errFrom := strconv.ParseInt(q.Get("from"), 10, 64)
	to, errTo := strconv.ParseInt(q.Get("to"), 10, 64)
	if errFrom == nil && errTo == nil && from < to && to > now.Add(-24*time.Hour).Unix() && from > 0 && from < now.Unix() {
		a.From, a.To = time.Unix(from, 0).UTC(), time.Unix(to, 0).UTC()
		a.Day = a.Day || now.Sub(a.From) > time.Hour
	}
	return a
}

// Link returns the URL of the page with this filter.
func (a asked) Link() string {
	q := url.Values{}
	if a.Rule != "" {
		q.Set("rule", a.Rule)
	}
	if a.Window != telemetry.Hour {
		q.Set("window", a.Window.String())
	}
	if a.Day {
		q.Set("span", "day")
	}
	if !a.From.IsZero() {
		q.Set("from", strconv.FormatInt(a.From.Unix(), 10))
		q.Set("to", strconv.FormatInt(a.To.Unix(), 10))
	}
	if len(q) == 0 {
		return "/"
	}
	return "/?" + q.Encode()
}

// Ranged reports whether a part of the chart is selected.
func (a asked) Ranged() bool { return !a.From.IsZero() }

// WithRule returns the link that selects a rule. If the rule is already selected, the link selects all rules.
func (a asked) WithRule(name string) string {
	if a.Rule == name {
		name = ""
	}
	a.Rule = name
	return a.Link()
}

// WithoutRange returns the link that selects the whole chart.
func (a asked) WithoutRange() string {
	a.From, a.To, a.Day = time.Time{}, time.Time{}, false
	return a.Link()
}

// WithWindow returns the link that selects how far the lists of denied subjects look back.
func (a asked) WithWindow(w telemetry.Window) string {
	a.Window = w
	return a.Link()
}

// WithSpan returns the link that selects a day for the chart if the parameter day is true, otherwise an hour.
func (a asked) WithSpan(day bool) string {
	a.Day, a.From, a.To = day, time.Time{}, time.Time{}
	return a.Link()
}

// choice is one of several links, of which one is selected.
type choice struct {
	Name, Link string
	Chosen     bool
}

// Spans returns the choices for the time span of the chart.
func (a asked) Spans() []choice {
	return []choice{{"Hour", a.WithSpan(false), !a.Day}, {"Day", a.WithSpan(true), a.Day}}
}

// Windows returns the choices for how far the lists of denied subjects look back.
func (a asked) Windows() (all []choice) {
	for w := range telemetry.Window(telemetry.Windows) {
		all = append(all, choice{w.String(), a.WithWindow(w), w == a.Window})
	}
	return all
}
