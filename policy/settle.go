package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// ErrNothingToSettle is returned by [Engine.SettleRequest] where no rule that counts the request
// goes by its outcome, or by what is known of it yet.
var ErrNothingToSettle = errors.New("policy: no rule that counts the request goes by this outcome")

// ErrNotCharged is matched by the errors of [Engine.SettleRequest] about a request that the policy
// would not have let through.
var ErrNotCharged = errors.New("policy: the request was not charged")

// SettleRequest settles a request by its outcome, as [Engine.Settle] does, for a caller that has no
// decision any more. The request must have been let through and charged by the same policy, and not
// be settled yet: what it was charged is found by matching it again. With an ID it is settled once
// within [RepeatedWithin], however often this is called.
//
// Time is when it was charged, by which old charges are not given back: now, if it is zero. How
// full a bucket was then is not known any more, so it gives back for as long as a full one takes
// to drain, and not only until this one would have.
func (e *Engine) SettleRequest(ctx context.Context, req *Request, o Outcome) error {
	var d Decision
	w := e.begin(req, &d)
	defer e.end(w)
	w.mode = settling
	e.prepare(ctx, w, &d)
	switch {
	case d.Missing != "":
		return fmt.Errorf("%w: it lacks %s", ErrNotCharged, d.Missing)
	case d.Blocked != "":
		return fmt.Errorf("%w, or by a policy that has changed: rule %q blocks it", ErrNotCharged, d.Blocked)
	}
	u := chargedBefore(w)
	waiting := len(u.open)
	b := u.settle(&o)
	if len(u.open) == waiting {
		return ErrNothingToSettle
	}
	if list := w.charges.list; req.ID != "" {
		asked := appendAsked([]byte{settledOnce}, req.ID, list, 1)
		b.charges, b.first = append([]sluice.Charge{onceCharge(&w.charges.once.keys, asked, list[0].Key)}, b.charges...), 1
	}
	return e.settle(ctx, &b)
}

// chargedBefore returns what the outcome is to settle of a request that has been charged what is in w.
func chargedBefore(w *work) *unsettled {
	u := &unsettled{taken: w.request.Time}
	if u.taken.IsZero() {
		u.taken = time.Now()
	}
	for i, c := range w.charges.list {
		if r := w.charges.whose[i].rule; r.settles() {
			c.Shadow = true
			u.open = append(u.open, openCharge{c, r.name, r.counts, &r.cost, longestRefund(c.Plan, u.taken)})
		}
	}
	return u
}

// longestRefund returns how long what was taken at a time can be given back, at the longest.
func longestRefund(p *sluice.Plan, taken time.Time) time.Duration {
	if p.Kernel.Log() {
		return p.Limit.Period
	}
	var r sluice.Receipt
	p.Step(kernel.State{}, taken.UnixMicro(), p.Capacity, &r.Receipt)
	result := Result{Plan: p, Decision: p.Decide(p.Capacity, r)}
	return result.Lasts()
}
