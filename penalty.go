package sluice

import (
	"fmt"
	"hash/fnv"
	"time"
)

// Penalty is a lockout: a key that exceeds a limit is refused for a time, whatever the limit has
// left. Requests refused in that time do not prolong it.
type Penalty struct {
	// First is how long the first penalty lasts, a whole number of microseconds.
	First time.Duration
	// Factor makes each penalty that many times as long as the one before, up to Most. With 0 or 1,
	// every penalty lasts as long as the first.
	Factor int64
	// Most bounds the penalties that Factor makes longer: if zero, at a day or First, whichever is longer.
	Most time.Duration
	// Forget is how long after its end a penalty still makes the next one longer: if zero, a day.
	Forget time.Duration
}

const (
	longestPenalty = 3650 * 24 * time.Hour // so that the sum of a time, a penalty and its Forget is exact
	maxFactor      = 1000
	aDay           = 24 * time.Hour
)

// Plan compiles a penalty to a plan of the [Lock] kernel. A [Charge] of it follows those of
// the limits that it guards, and has their Key: see [Offends]. It costs 1 if they cost
// anything and 0 to look; any negative cost lifts the penalty and forgets earlier ones. Changing a
// penalty leaves those in force alone, but cuts one that has more than twice as long left as it
// would now last.
func (p Penalty) Plan() (*Plan, error) {
	p, err := p.filled()
	if err != nil {
		return nil, &usageError{err}
	}
	h := fnv.New64a()
	fmt.Fprint(h, "lock")
	return &Plan{Kernel: Lock, Tick: 1, Capacity: 1, Most: 1, Fingerprint: h.Sum64(), Penalty: p}, nil
}

// filled returns p with its defaults filled in.
func (p Penalty) filled() (Penalty, error) {
	if p.Factor < 0 || p.Factor > maxFactor {
		return p, fmt.Errorf("the factor of a penalty is %d, and must be from 1 to %d", p.Factor, maxFactor)
	}
	if p.Factor <= 1 {
		if p.Most != 0 || p.Forget != 0 {
			return p, fmt.Errorf("without a factor all penalties last for %v: leave out most and forget, or give it a factor of 2", p.First)
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
		return p, fmt.Errorf("the longest penalty is %v, and the first already %v: raise most or lower first", p.Most, p.First)
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
		return fmt.Errorf("%s is %v, and must be ten years at most: block instead", what, d)
	}
	return nil
}

// Offends reports whether charge i of a [Store.Take] records an offence: its plan is a [Lock] that
// is not in force, and an earlier charge with the same key and a positive cost does not fit. Other
// charges that refuse the Take make no difference, except an earlier one of [NewOnce] that does not
// fit: a repeat is no offence. Nor is a cost that is owed. Every store calls Offends, or does the same.
func Offends(charges []Charge, receipts []Receipt, i int) bool {
	c := &charges[i]
	if c.Plan.Kernel != Lock || c.Cost <= 0 || !receipts[i].Fits {
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

// stepLock is the step of the lock kernel. In a state, Tick is the end of the penalty, Used the
// number of penalties in a row, and Prev the time when they are forgotten. Here only a negative
// cost or a clock that has stepped back changes it; offences do so by [Plan.Offend].
func (p *Plan) stepLock(s State, now, cost int64, r *Receipt) State {
	if cost < 0 {
		*r = Receipt{Now: now, Fits: true}
		return State{}
	}
	known, moved := p.locked(s, now)
	*r = Receipt{Now: now, Tick: known.Tick, Used: known.Used, Prev: known.Prev, Fits: cost == 0 || now >= known.Tick}
	if moved {
		return known
	}
	return s
}

// Offend records an offence at now, in microseconds since the Unix epoch, against the [Lock] with
// state s: it returns the state to keep, and makes r the receipt of a charge that is refused. While
// a penalty is in force nothing changes, so that all callers are told the same end.
func (p *Plan) Offend(s State, now int64, r *Receipt) State {
	s, _ = p.locked(s, now)
	if now >= s.Tick {
		n := s.Used
		if n == 0 || p.penalty(n) < p.Penalty.Most.Microseconds() { // then it stays that long
			n++
		}
		until := now + p.penalty(n)
		s = State{Tick: until, Used: n, Prev: until + p.Penalty.Forget.Microseconds()}
	}
	*r = Receipt{Now: now, Tick: s.Tick, Used: s.Used, Prev: s.Prev}
	return s
}

// locked returns s as it stands at now: empty if it is forgotten. Where the clock has stepped back
// so far that the end lies more than two penalties ahead, it moves along, and moved is true.
func (p *Plan) locked(s State, now int64) (_ State, moved bool) {
	if s.Used == 0 || now >= s.Prev {
		return State{}, false
	}
	length := p.penalty(s.Used)
	if s.Tick-now <= 2*length {
		return s, false
	}
	until := now + length
	return State{Tick: until, Used: s.Used, Prev: until + s.Prev - s.Tick}, true
}

// penalty returns how long the nth penalty in a row lasts, in microseconds.
func (p *Plan) penalty(n int64) int64 {
	length, most := p.Penalty.First.Microseconds(), p.Penalty.Most.Microseconds()
	for ; n > 1 && length < most; n-- {
		length = min(most, length*p.Penalty.Factor)
	}
	return length
}

// decideLock is decide for a lock. What remains is 1, or 0 while it is in force.
func (p *Plan) decideLock(r *Receipt, d *Decision) {
	d.Remaining = 1
	d.ResetAfter = p.until(r.Prev, r.Now)
	if wait := p.until(r.Tick, r.Now); wait > 0 && !(r.Fits && r.Origin == ByOnError) {
		d.Remaining, d.RetryAfter, d.Locked = 0, wait, true
	}
}

// LockOut applies a penalty to d, the decision of a limit: lock is that of the penalty's [Lock] in
// the same Take. While the penalty is in force nothing remains, and the wait is at least as long
// as the rest of the penalty.
func (d *Decision) LockOut(lock Decision) {
	if d.Allowed && !lock.Allowed {
		d.Allowed, d.Origin = false, lock.Origin
	}
	if !lock.Allowed || lock.Locked {
		d.Delay, d.RetryAfter = 0, max(d.RetryAfter, lock.RetryAfter)
	}
	if lock.Locked {
		d.Locked, d.Remaining, d.ResetAfter = true, 0, max(d.ResetAfter, lock.RetryAfter)
	}
}
