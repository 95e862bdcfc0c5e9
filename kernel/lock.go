package kernel

import (
	"fmt"
	"hash/fnv"
)

// Lockout has the settings of a [Lock]. Times are in microseconds. The first penalty of a key lasts First. Each
// further penalty lasts Factor times as long as the one before, up to Most. When Forget has passed since the end of
// a penalty, the next penalty is a first one again.
type Lockout struct{ First, Factor, Most, Forget int64 }

// NewLock returns a plan of the [Lock] kernel. First and Factor must be at least 1, Most at least First, Forget at
// least 0, and Factor times Most less than 2^63.
func NewLock(l Lockout) Plan {
	h := fnv.New64a()
	fmt.Fprint(h, "lock")
	return Plan{Kernel: Lock, Tick: 1, Capacity: 1, Most: 1, Fingerprint: h.Sum64(), Lockout: l}
}

// stepLock is the step of the lock kernel. In a state, Tick is the end of the penalty, Used is the number of
// penalties in a row, and Prev is the time when the penalties are forgotten. stepLock changes the state only for a
// negative cost, or if the end of the penalty is too far ahead: see locked. [Plan.Offend] changes it for offences.
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

// Offend records an offence against the [Lock] with state s at the time now, in microseconds since the Unix epoch.
// It returns the state to keep, and sets r to the receipt of a denied charge. While a penalty is in force, nothing
// changes, so all callers see the same end.
func (p *Plan) Offend(s State, now int64, r *Receipt) State {
	s, _ = p.locked(s, now)
	if now >= s.Tick {
		n := s.Used
		if n == 0 || p.penalty(n) < p.Lockout.Most { // at Most, penalties no longer grow
			n++
		}
		until := now + p.penalty(n)
		s = State{Tick: until, Used: n, Prev: until + p.Lockout.Forget}
	}
	*r = Receipt{Now: now, Tick: s.Tick, Used: s.Used, Prev: s.Prev}
	return s
}

// locked returns s as of the time now: the empty state if the penalties are forgotten. If the end is more than twice
// the penalty's length ahead, because the clock has stepped back or the plan now has shorter penalties, locked moves
// the end back, and the result moved is true.
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

// penalty returns the length of the nth penalty in a row, in microseconds.
func (p *Plan) penalty(n int64) int64 {
	length, most := p.Lockout.First, p.Lockout.Most
	for ; n > 1 && length < most; n-- {
		length = min(most, length*p.Lockout.Factor)
	}
	return length
}
