package sluice

import (
	"fmt"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// Penalty is a lockout: a key that exceeds a limit is denied for a time, whatever remains of the limit. Requests
// denied in that time do not prolong it.
type Penalty struct {
	// First is how long the first penalty lasts, a whole number of microseconds.
	First time.Duration
	// Factor makes each penalty Factor times as long as the previous one, up to Most. With 0 or 1, every penalty
	// lasts as long as the first, and Most and Forget must be zero.
	Factor int64
	// Most is the length of the longest penalty. With a Factor of at least 2, zero means a day, or First if that is
	// longer.
	Most time.Duration
	// Forget is the time after the end of a penalty in which another offence leads to a longer penalty. With a
	// Factor of at least 2, zero means a day.
	Forget time.Duration
}

const (
	longestPenalty = 3650 * 24 * time.Hour // so that a time plus a penalty plus its Forget is below 2^53 microseconds
	maxFactor      = 1000
	aDay           = 24 * time.Hour
)

// Plan compiles a penalty. In a Take, put the penalty's [Charge] after the charges of the limits that it guards, and
// give it the same Key: see [Offends]. Its Cost is 1 if the limits' cost is above 0, and 0 for a peek. Any negative
// cost lifts the penalty, and forgets earlier ones. A change of the settings does not affect penalties that are in
// force, with one exception: if a penalty has more than twice the new length left, it is cut to the new length.
func (p Penalty) Plan() (*Plan, error) {
	p, err := p.filled()
	if err != nil {
		return nil, &usageError{err}
	}
	lock := kernel.NewLock(kernel.Lockout{
		First: p.First.Microseconds(), Factor: p.Factor, Most: p.Most.Microseconds(), Forget: p.Forget.Microseconds(),
	})
	return &Plan{Plan: lock, Penalty: p}, nil
}

// filled returns p with its defaults, or an error if p is invalid.
func (p Penalty) filled() (Penalty, error) {
	if p.Factor < 0 || p.Factor > maxFactor {
		return p, fmt.Errorf("the factor of a penalty is %d, and must be from 0 to %d", p.Factor, maxFactor)
	}
	if p.Factor <= 1 {
		if p.Most != 0 || p.Forget != 0 {
			return p, fmt.Errorf("without a factor of at least 2, all penalties last for %v: set \"factor\", or remove \"most\" and \"forget\"", p.First)
		}
		p.Factor, p.Most = 1, p.First
		return p, checkPenalty("a penalty", p.First)
	}
	if p.Most == 0 {
		p.Most = max(p.First, aDay)
	}
	if p.Forget == 0 {
		p.Forget = aDay
	}
	if p.Most < p.First {
		return p, fmt.Errorf("the first penalty, %v, is longer than the longest penalty, %v: raise \"most\" or lower \"first\"", p.First, p.Most)
	}
	for _, l := range []struct {
		what string
		d    time.Duration
	}{{"the first penalty", p.First}, {"the longest penalty", p.Most}, {"the time after which penalties are forgotten", p.Forget}} {
		if err := checkPenalty(l.what, l.d); err != nil {
			return p, err
		}
	}
	return p, nil
}

func checkPenalty(what string, d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("%s is %v, and must be positive", what, d)
	case d%time.Microsecond != 0:
		return fmt.Errorf("%s, %v, is not a whole number of microseconds", what, d)
	case d > longestPenalty:
		return fmt.Errorf("%s is %v, and must be at most ten years", what, d)
	}
	return nil
}

// Offends reports whether charge i of a [Store.Take] records an offence, which starts a penalty. A charge
// records an offence if all of these are true:
//
//   - It is the charge of a [Penalty], its Cost is positive, and it fits: no penalty is in force.
//   - An earlier charge with the same Key and a positive Cost does not fit. A charge with Owe does not count.
//   - Every earlier charge of [NewOnce] fits. If one does not fit, the Take is a repeat, and no offence.
//
// The receipts are those before the penalty starts. Whether the Take is refused, and by which charges, makes no
// difference. Every store calls Offends, or computes the same result.
func Offends(charges []Charge, receipts []Receipt, i int) bool {
	c := &charges[i]
	if c.Plan.Kernel != kernel.Lock || c.Cost <= 0 || !receipts[i].Fits {
		return false
	}
	offends := false
	for j := range charges[:i] {
		switch b := &charges[j]; {
		case b.Cost <= 0 || b.Owe || receipts[j].Fits:
		case b.Plan.Once:
			return false
		case b.Key == c.Key:
			offends = true
		}
	}
	return offends
}

// decideLock is DecideInto for a penalty. Remaining is 1, or 0 while the penalty is in force.
func (p *Plan) decideLock(r *Receipt, d *Decision) {
	d.Remaining, d.ResetAfter, d.RetryAfter = p.Answer(&r.Receipt, 1)
	if r.Fits && r.Origin == ByOnError {
		d.Remaining, d.RetryAfter = 1, 0
	}
	d.Locked = d.RetryAfter > 0
}

// LockOut applies a penalty to d, the decision of a limit. lock is the decision for the penalty's charge in the
// same Take. While the penalty is in force nothing remains, and the wait is at least as long as the rest of the
// penalty.
func (d *Decision) LockOut(lock Decision) {
	if d.Allowed && !lock.Allowed {
		d.Allowed, d.Origin = false, lock.Origin
	}
	if !lock.Allowed || lock.Locked {
		d.Delay, d.Early, d.RetryAfter = 0, 0, max(d.RetryAfter, lock.RetryAfter)
	}
	if lock.Locked {
		d.Locked, d.Remaining, d.ResetAfter = true, 0, max(d.ResetAfter, lock.RetryAfter)
	}
}
