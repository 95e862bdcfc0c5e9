package telemetry

import (
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// Sheds returns the number of requests that the limits denied in the last minute. If they denied none because the
// rule is in shadow mode, it returns the number of requests that would have been denied, and the second result is
// true. Without an overload, it returns zeros.
func (l *Load) Sheds() (by ByClass, would bool) {
	if l.Overloaded.IsZero() {
		return by, false
	}
	denied, watched := l.LastMinute()
	if denied.Total() == 0 {
		return watched, watched.Total() > 0
	}
	return denied, false
}

// shedding returns the alert for an automatic limit that denies requests, or that would deny requests if its rule were
// not in shadow mode, and the name of the alert. The level is Bad only if normal or critical requests are denied.
func (v *View) shedding(r *Rule) (name string, h *Headline) {
	if r.Load == nil {
		return "", nil
	}
	by, would := r.Load.Sheds()
	if by.Total() == 0 {
		return "", nil
	}
	h = &Headline{Level: Unknown, Rule: r.Name, Since: r.Load.Overloaded}
	verb := "sheds"
	switch {
	case would:
		name, verb = "would-shed:"+r.Name, "would shed"
	case by[0] == by.Total():
		name = "shedding-sheddable:" + r.Name
	default:
		name, h.Level = "shedding:"+r.Name, Bad
	}
	h.Text = fmt.Sprintf("Since %s %s %s %s in the last minute%s.", v.clock(h.Since), plain(title(r.Name)), verb, requestsByClass(&by), r.Load.why())
	return name, h
}

// requestsByClass returns numbers of requests as text, the most important class first.
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

// why returns the reason for an overload as the end of a sentence: how slow the upstream is. It is empty if that is
// unknown.
func (s *LoadState) why() string {
	if s.Base <= 0 || s.Latency <= 0 {
		return ""
	}
	most := ""
	if s.Limits > 1 {
		most = "at worst, "
	}
	return fmt.Sprintf(": %sthe latency is %s times the idle latency (%s, %s)", most, decimal(s.Slowdown()), waited(s.Latency), waited(s.Base))
}
