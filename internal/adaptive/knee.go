package adaptive

import (
	"math"
	"time"
)

const milli = 1000

// knee finds the limit. Numbers of requests are in thousandths, times in µs.
type knee struct {
	least, most int64
	limit       int64
	critical    int64 // limit of critical requests
	base        int64
	latency     int64 // of the latest window
	probing     bool
	next        int64   // time of the next probe
	probed      int64   // base after the latest probe
	before      measure // full's alone, if it is no evidence
}

const (
	probeEvery = 20_000_000 // µs
	checkAfter = 2_000_000
)

// sqrt returns the root of n, rounded down.
func sqrt(n int64) int64 { return int64(math.Sqrt(float64(max(n, 0)))) }

// root returns the root of a number of thousandths, in thousandths.
func root(n int64) int64 { return sqrt(n * milli) }

// places returns the root of the limit, rounded up: requests by which the limits of classes differ.
func (k *knee) places() int64 { return (root(k.limit) + milli - 1) / milli }

func (k *knee) limitOf(c Class) int64 {
	least, limit := k.least/milli, k.limit/milli
	switch c {
	case Sheddable:
		limit -= k.places()
	case Critical:
		return k.critical / milli
	}
	switch {
	case k.probing && k.limit < 2*k.least:
		limit *= 2
	case k.probing:
		limit /= 2
	}
	return max(limit, least)
}

// set sets the limit within its bounds.
func (k *knee) set(limit int64) {
	k.limit = min(max(limit, k.least), k.most)
	k.critical = max(k.limit+2*k.places()*milli, k.critical*7/10)
}

// step learns from a window, and reports whether limits have changed.
func (k *knee) step(m measure, now time.Duration) (changed bool) {
	first := k.base == 0
	if m.latency > 0 {
		k.latency = m.latency
		k.fall(m.latency + 2*m.err)
	}
	steady := k.before.full && m.full // in the first full window, latency lags behind the requests under way
	if k.probing {
		k.conclude(m, now)
		return true
	}
	if steady {
		k.compare(k.before, m)
	}
	k.before = m
	if !steady {
		k.before.latency = 0
	}
	if !m.full {
		old := k.critical
		k.set(k.limit)
		return old != k.critical
	}
	if m.failed*20 > m.answers {
		k.set(k.limit * 9 / 10)
		return true
	}
	if at := now.Microseconds(); (steady || first) && at >= k.next {
		k.next = (at/probeEvery + 1) * probeEvery
		k.probing, k.probed = true, k.base
		return true
	}
	k.move(m)
	return true
}

// conclude ends a probe. If half the limit still has a queue, or had one by the old base, another probe halves it
// again.
func (k *knee) conclude(m measure, now time.Duration) {
	old := k.probed
	k.compare(k.before, m)
	k.probed = k.base
	if (m.latency*2 > k.base*3 || k.base*9 < old*8) && k.limit >= 4*k.least {
		k.set(k.limit / 2)
		k.before = m
		return
	}
	k.probing = false
	k.move(k.before)
	k.before = measure{full: m.full}
	if k.base*8 > old*9 {
		k.next = now.Microseconds() + checkAfter
	}
}

// fall lowers the base to a latency that is possible without a queue.
func (k *knee) fall(latency int64) {
	if k.base == 0 || latency < k.base {
		k.base = latency
	}
}

// compare raises the base, if two windows show that a difference of requests under way makes none of latency.
func (k *knee) compare(a, b measure) {
	if a.inFlight < b.inFlight {
		a, b = b, a
	}
	apart := a.inFlight - b.inFlight
	if a.latency == 0 || b.latency == 0 || apart*20 < a.inFlight*3 {
		return
	}
	expected := apart * 1_000_000 / max(a.rate, 1)
	err := sqrt(a.err*a.err + b.err*b.err)
	if a.latency-b.latency+2*err < expected/2 {
		k.base = max(k.base, b.latency)
	}
}

// move moves the limit to where it keeps the upstream busy.
func (k *knee) move(m measure) {
	wait := max(m.latency-k.base, 0)
	busy := max(m.inFlight-m.rate*wait/1_000_000, 0)
	want := busy*3/2 + root(k.limit)
	switch {
	case wait*4 < m.latency:
		k.set(max(k.limit+root(k.limit)/2, min(want, k.limit*3/2)))
	default:
		k.set(min(max((want+k.limit)/2, k.limit/2), k.limit*3/2))
	}
}
