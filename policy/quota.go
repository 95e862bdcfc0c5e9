package policy

import (
	"context"

	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Quota tells of every limit that holds for whoever sends a request what is left of it, and takes
// nothing: the results of the decision are what [Engine.Decide] would say now, as in a [Trace].
// Without a Path, the limits are those of rules that have no patterns, and hold whatever the path.
//
// Left out are rules that do not count the request, and those that go by its query or body, which
// name others than who asks. A request that is blocked is told so, and one that is exempt has no
// limits. No observer hears of it.
func (e *Engine) Quota(ctx context.Context, req *Request) (d Decision) {
	s := e.begin(req, &d)
	defer e.end(s)
	s.pathless = req.NoPath || req.Path == ""
	if s.match() != nil {
		return Decision{Allowed: true, Exempt: true}
	}
	if by := s.barred(); by != nil {
		s.refuseBarred(&d, by)
		s.addBarring(&d)
		return d
	}
	if s.ambiguous {
		return Decision{Missing: ambiguousPath}
	}
	for i := range s.matches {
		if m := &s.matches[i]; !m.rule.countsTyped() && (m.rule.tiers == nil || !s.policy.tierTyped()) {
			s.charge(m) // what lacks a part that the rule needs has no limit by it
		}
	}
	e.rehearse(ctx, s, &d)
	s.addBarring(&d)
	return d
}

// tierTyped reports whether the tier of a request may follow from its query or body.
func (p *Policy) tierTyped() bool {
	for _, part := range []*parts.Part{p.tierFrom, p.tierSubject} {
		if part != nil && part.Folds() {
			return true
		}
	}
	return false
}
