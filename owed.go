package sluice

import "context"

// overruns is the largest debt of a key under a limit of a [Limiter], as a multiple of the limit's Capacity.
const overruns = 64

// Owe charges cost units even if they do not fit, for example if a request turned out to cost more than Take has
// charged. Units that do not fit become a debt: nothing passes until it has drained, or until [Limiter.Reset]. The
// debt is at most 64 times the Capacity of each limit; units beyond that are not charged. Owe does not charge a
// [LeakyBucket], and is not an offence under a Lock.
func (l *Limiter) Owe(ctx context.Context, key string, cost int64) error {
	if cost < 1 {
		return usage("sluice: Owe of %d units: must be at least 1", cost)
	}
	l.owing.Do(func() {
		for _, p := range l.plans {
			if !p.Queue {
				l.debts = append(l.debts, p.withDebt())
			}
		}
	})
	if len(l.debts) == 0 {
		return nil
	}
	c := newJoint(len(l.debts))
	key = l.key(&c.key, key)
	for i, p := range l.debts {
		c.charges[i] = Charge{Key: key, Plan: p, Cost: min(cost, p.Most), Owe: true, OnError: l.OnError, Consistency: l.Consistency}
	}
	return l.store.Take(ctx, c.charges, c.receipts)
}

// withDebt returns p with room for a debt of overruns times its Capacity. If states with this debt could not be
// exact, withDebt halves the debt until they can.
func (p *Plan) withDebt() *Plan {
	for times := int64(overruns); times > 0; times /= 2 {
		if q, err := p.WithMost(p.Capacity * (times + 1)); err == nil {
			return q
		}
	}
	return p
}
