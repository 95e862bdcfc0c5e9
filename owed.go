package sluice

import "context"

// overruns is how many times its Capacity a key may owe under a limit of a [Limiter].
const overruns = 64

// Owe charges cost units that are due in any case, such as what a request turned out to cost beyond
// what Take has charged. What does not fit is owed: nothing passes until it has drained, or [Limiter.Reset]
// forgives it. A key owes at most 64 times the Capacity of each limit; what is above that is not
// charged. A [LeakyBucket] is left as it is. To owe is no offence under a Lock.
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

// withDebt returns p with room for overruns debts, or as many as can be counted exactly.
func (p *Plan) withDebt() *Plan {
	for times := int64(overruns); times > 0; times /= 2 {
		if q, err := p.WithMost(p.Capacity * (times + 1)); err == nil {
			return q
		}
	}
	return p
}
