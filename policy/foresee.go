package policy

import (
	"context"

	"github.com/sluicehq/sluice"
)

// After returns what [Engine.Decide] would say now of the request: the Decision, with Remaining,
// ResetAfter and Delay of its results as they are once the request has been charged. Of a request that is
// refused before its body is read, there are only the results of the rules that were asked by then.
func (t *Trace) After() Decision {
	if t.after != nil {
		return *t.after
	}
	return t.Decision
}

// askNext asks the store when logs that the request fills will fit one more unit.
func (s *scratch) askNext(ctx context.Context, store sluice.Store) {
	var waits logWaits
	for i := range s.results {
		c, r := &s.charges[i], &s.receipts[i]
		if c.Plan.Kernel.Log() && r.Fits && r.Origin != sluice.ByOnError && r.Used > 0 && r.Used+c.Cost >= c.Plan.Capacity {
			waits.add(logWait{s: s, charge: i}, c.Cost+1)
		}
	}
	waits.ask(ctx, store)
}

// foresee returns what becomes of a decision that was rehearsed once what fits is taken. If nothing
// is taken, it is nil.
func (s *scratch) foresee(d *Decision) *Decision {
	switch {
	case len(d.Results) == 0 || d.Err != nil || d.Blocked != "":
		return nil
	case !d.Allowed:
		return s.refusedFirst(d)
	}
	after := d.Clone()
	after.Delay = 0
	for i := range after.Results {
		r, receipt, cost := &after.Results[i], s.receipts[i], s.charges[i].Cost
		if !receipt.Fits || receipt.Origin == sluice.ByOnError {
			continue // nothing is taken, or nobody knows what remains
		}
		spend(r.Plan, &receipt, cost)
		s.charges[i].Plan.DecideInto(cost, &receipt, &r.Decision)
		s.foreseeTurn(i, r, &receipt)
		if lock := s.lockOf(i); lock >= 0 {
			r.LockOut(s.charges[lock].Plan.Decide(s.charges[lock].Cost, s.receipts[lock]))
		}
		after.weigh(r)
	}
	return &after
}

// refusedFirst returns the decision of those rules that refuse before a body is read for others:
// see [Engine.refusedUnread]. If none does, it is nil.
func (s *scratch) refusedFirst(d *Decision) *Decision {
	if s.offence || !s.looksFirst() {
		return nil
	}
	first := d.Clone()
	first.Results, first.RetryAfter = first.Results[:0], 0
	refuses := false
	for i := range d.Results {
		if r := s.ruleOf(i); r.readsBody || r.shadow || s.charges[i].Cost != 1 {
			continue
		}
		refuses = refuses || !d.Results[i].Allowed
		first.Results = append(first.Results, d.Results[i])
		first.weigh(&d.Results[i])
	}
	if !refuses {
		return nil
	}
	return &first
}

// spend makes the receipt of a peek that of a charge that fits.
func spend(p *sluice.Plan, r *sluice.Receipt, cost int64) {
	if p.Kernel.Log() {
		newest := r.Now / p.Tick
		switch {
		case r.Used+cost < p.Capacity:
			r.Wait = 0
		case r.Used == 0:
			r.Wait = newest + p.Span // when the units of this charge expire
		case r.Wait == 0: // the store was not asked, or did not answer: the latest that it can be
			r.Wait = r.Tick + p.Span
		}
		r.Tick = max(r.Tick, newest)
	}
	if isQueue(p) && r.Prev > 0 {
		return // it takes a turn before the last
	}
	r.Used += p.Level(cost)
}
