package telemetry

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// shedding reports a rule whose automatic limit denies requests, or would as a shadow. Denials of sheddable requests
// alone are an information.
func (v *View) shedding(r *Rule) (name string, h *Headline) {
	name = "shedding:" + r.Name
	if r.Load == nil || r.Load.Overloaded.IsZero() {
		return name, nil
	}
	denied, watched := r.Load.LastMinute()
	if denied.Total()+watched.Total() == 0 {
		return name, nil
	}
	h = &Headline{Level: Unknown, Rule: r.Name, Since: r.Load.Overloaded}
	verb, by := "sheds", denied
	switch {
	case denied.Total() == 0:
		name, verb, by = "would-shed:"+r.Name, "would shed", watched
	case denied[0] == denied.Total():
		name = "shedding-sheddable:" + r.Name
	default:
		h.Level = Bad
	}
	h.Text = fmt.Sprintf("Since %s %s %s %s in the last minute%s.", v.clock(h.Since), plain(title(r.Name)), verb, requestsByClass(&by), r.Load.Why())
	return name, h
}

// requestsByClass returns numbers of requests as text, those of the most important class first.
func requestsByClass(c *ByClass) string {
	var all []string
	names := policy.ClassNames()
	for class := Classes - 1; class >= 0; class-- {
		if c[class] > 0 {
			all = append(all, number(c[class], names[class]+" request"))
		}
	}
	return strings.Join(all, ", ")
}

// Why returns the reason for an overload as the end of a sentence: how slow the upstream is. It is empty if that is
// unknown.
func (s *LoadState) Why() string {
	if s.Base <= 0 || s.Latency <= 0 {
		return ""
	}
	of := ""
	if s.Limits > 1 {
		of = " of the slowest"
	}
	return fmt.Sprintf(": the latency%s is %s times that of idle (%s, %s)", of, decimal(s.Slowdown()), waited(s.Latency), waited(s.Base))
}
