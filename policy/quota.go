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
	w := e.begin(req, &d)
	defer e.end(w)
	w.matches.pathless = req.Path == ""
	if w.match(); w.matches.exempting != nil {
		return Decision{Allowed: true, Exempt: true}
	}
	if by := w.matches.barred(); by != nil {
		refuseBarred(&d, by)
		d.addBlocks(w)
		return d
	}
	if w.matches.ambiguous {
		return Decision{Missing: ambiguousPath}
	}
	for i := range w.matches.rules {
		if m := &w.matches.rules[i]; !m.rule.countsTyped() && (m.rule.tiers == nil || !w.policy.tierTyped()) {
			w.subjects.resolve(&w.input, m) // what lacks a part that the rule needs has no limit by it
		}
	}
	w.charge(false)
	e.preview(ctx, w, &d)
	d.addBlocks(w)
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
