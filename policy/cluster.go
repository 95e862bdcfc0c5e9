package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// Cluster says which rules a Redis Cluster can charge in one step: only those with the same hash tag.
// A single server or memory charges all rules in one step.
//
// The names in together are rules that can be charged in one step, since they have the
// same parts under "together"; there are at least two in each group. A problem in apart
// names a rule and those that may hold for the same requests and are not charged in one
// step with it. They are charged one after the other, and given back if a later one
// refuses: for a moment too much may be refused, but never too much admitted. That two
// rules ask for different headers is not looked at: a request may have both.
func (p *Policy) Cluster() (together [][]string, apart []Problem) {
	tags := make([]string, len(p.rules))
	groups := make(map[string]int)
	for i := range p.rules {
		r := &p.rules[i]
		if !r.charges() {
			continue
		}
		if tags[i] = r.tag(); tags[i] != "" {
			g, known := groups[tags[i]]
			if !known {
				g = len(together)
				groups[tags[i]] = g
				together = append(together, nil)
			}
			together[g] = append(together[g], r.name)
		}
		var others []*rule
		for j := range i {
			o := &p.rules[j]
			if o.charges() && (tags[i] == "" || tags[i] != tags[j]) && r.mayMeet(o, p.ignoreCase) {
				others = append(others, o)
			}
		}
		if len(others) > 0 {
			apart = append(apart, p.apartFrom(r, others))
		}
	}
	return slices.DeleteFunc(together, func(names []string) bool { return len(names) < 2 }), apart
}

// tag is the same for rules whose hash tags are the same for each request, or "". The
// part "route" is the pattern that matched, which is the same where the patterns are.
func (r *rule) tag() string {
	var b strings.Builder
	for _, i := range r.together {
		k := &r.key[i]
		fmt.Fprintf(&b, "%q ", k.ID())
		for _, m := range r.match {
			if k.IsRoute() {
				fmt.Fprintf(&b, "%q ", m.Text)
			}
		}
	}
	return b.String()
}

// mayMeet reports whether both rules can hold for one request.
func (r *rule) mayMeet(o *rule, ignoreCase bool) bool {
	if len(r.hosts) > 0 && len(o.hosts) > 0 && !slices.ContainsFunc(r.hosts, func(h string) bool { return hostsMeet(h, o.hosts) }) {
		return false
	}
	if len(r.match) == 0 || len(o.match) == 0 {
		return true
	}
	for _, p := range r.match {
		if slices.ContainsFunc(o.match, func(q *pattern.Pattern) bool { return p.Meets(q, ignoreCase) }) {
			return true
		}
	}
	return false
}

// hostsMeet reports whether a host can be one of hosts; any may be a "*.example.com".
func hostsMeet(host string, hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		switch {
		case h == host:
			return true
		case h[0] == '*' && strings.HasSuffix(host, h[1:]):
			return true
		}
		return host[0] == '*' && strings.HasSuffix(h, host[1:])
	})
}

func (p *Policy) apartFrom(r *rule, others []*rule) Problem {
	names := make([]string, 0, len(others))
	shared := slices.Clone(r.key)
	for _, o := range others {
		names = append(names, o.name)
		shared = slices.DeleteFunc(shared, func(k parts.Part) bool { return k.IsRoute() || !o.key.Contains(&k) })
	}
	const most = 5
	if more := len(names) - most; more > 1 {
		names = append(names[:most:most], fmt.Sprintf("%d more", more))
	}
	hint := "their keys have no part in common that \"together\" could name"
	if len(shared) > 0 {
		hint = fmt.Sprintf("write \"together: [%s]\" in all of them", strings.Join(shared.Names(), ", "))
	}
	return Problem{
		File: r.file, Line: r.line, Path: fmt.Sprintf("rules[%d]", r.index), Rule: r.name, Hint: hint,
		Message: "on a cluster it is not charged in one step with " + strings.Join(names, ", "),
	}
}
