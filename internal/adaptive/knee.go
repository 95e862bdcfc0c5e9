package adaptive

import "math"

const (
	milli      = 1000
	probeEvery = 20_000_000 // µs
	checkAfter = 2_000_000  // µs
	patience   = 4          // a probe without a result ends after this number of slots
	tolerated  = 50         // failures above 3/2 of the usual fraction that do not lower the limit, in thousandths of the answers
	deep       = 3          // the limit falls fast if requests wait longer than this multiple of the base
)

// knee finds the limit. Numbers of requests are in thousandths, and times are in µs.
type knee struct {
	least, most int64
	limit       int64
	critical    int64 // the limit of critical requests
	base        int64
	latency     int64 // the typical latency of the latest window
	probing     bool
	up          bool    // the probe doubles the limit; other probes halve it
	vain        int     // the number of consecutive probes without a result
	probed      int64   // the base before the probe
	next        int64   // the time of the next probe
	usual       int64   // the usual failures, in thousandths of the answers
	failed      int64   // the failures at the time when they began to exceed the usual ones, in thousandths of the answers; or 0
	from        int64   // the limit when failed was set
	served      int64   // the recent number of requests under way without denials and without a queue
	before      measure // the window with which later windows are compared, if it has a latency
	half        measure // the windows of the present probe and of earlier probes without a result, together
}

// sqrt returns the square root of n, rounded down.
func sqrt(n int64) int64 { return int64(math.Sqrt(float64(max(n, 0)))) }

// root returns the square root of a number; both are in thousandths.
func root(n int64) int64 { return sqrt(n * milli) }

// headroom returns the number of requests by which the limits of classes differ: the square root of the limit,
// rounded up.
func (k *knee) headroom() int64 { return (root(k.limit) + milli - 1) / milli }

// limitOf returns the limit of a class: while this number of requests is under way, further requests of the class
// are denied.
func (k *knee) limitOf(c Class) int64 {
	least, limit := k.least/milli, k.limit/milli
	switch c {
	case Sheddable:
		limit -= k.headroom()
	case Critical:
		return k.critical / milli
	}
	switch {
	case k.probing && k.up:
		limit *= 2
	case k.probing:
		limit /= 2
	}
	return max(limit, least)
}

// set sets the limit within its bounds. When the limit falls, the limit of critical requests follows one window
// later, because requests under way take time to end.
func (k *knee) set(limit int64) {
	before := k.limit + k.headroom()*milli
	k.limit = min(max(limit, k.least), k.most)
	k.critical = max(k.limit+2*k.headroom()*milli, min(k.critical, before))
}

// slot returns how long a probe takes. Limiters of one upstream have about the same latency, and so the same slots.
func (k *knee) slot() int64 {
	d := int64(2 * grid)
	for d < 4*k.latency {
		d *= 2
	}
	return d
}

// due returns the time after which few samples are enough for a window. The first window always needs only few
// samples, so that it ends before a queue grows. Later windows need only few samples after the time of the next
// probe, if there is a window to compare them with.
func (k *knee) due() int64 {
	switch {
	case k.base == 0:
		return math.MinInt64
	case k.before.latency == 0:
		return math.MaxInt64
	}
	return k.next
}

// schedule sets the time of the next probe to the first multiple of the given period after the time from.
func (k *knee) schedule(from, period int64) { k.next = (from/period + 1) * period }

// step adapts the limit to a window that ends at a time.
func (k *knee) step(m measure, at int64) {
	first := k.base == 0
	if m.answers >= few && m.latency > 0 {
		k.latency = m.latency
		k.learn(m)
	}
	failing := k.failing(m)
	if k.probing {
		k.conclude(m, failing, at)
		return
	}
	steady := k.before.full && m.full // in the first full window, the latency lags behind the number of requests under way
	// Near the least limit, a long latency that does not fall with fewer requests is not caused by a queue, so it
	// becomes the base. With larger limits, the requests of other gateways may queue.
	if steady && !failing && k.limit <= 2*k.least && m.latency > (deep+1)*k.base && k.compare(m) == free {
		k.base = max(k.base, min(m.latency, k.before.latency))
	}
	k.remember(m, steady)
	if !m.full {
		k.set(k.limit)
		return
	}
	old, slot := k.limit, k.slot()
	if !first {
		k.move(m, failing)
	}
	if k.lowest() && k.limit < old {
		k.schedule(at, slot)
	}
	switch {
	case m.cut || failing || k.limit*4 < old*3:
	case first, steady && at >= k.next && at < k.next+grid:
		k.probe(at, slot)
	case steady && at >= k.next:
		k.schedule(at, slot)
	}
}

// learn updates the base. The window that sets the first base cannot show whether its requests queued. In a probe, a
// lower latency becomes the base at once. In a full window, the base falls by half at most. While all requests fit, the
// base changes slowly, because these requests may cost less or more than the requests of an overload.
func (k *knee) learn(m measure) {
	switch low := m.latency + 2*m.err; {
	case k.base == 0:
		k.base = m.latency
		return
	case k.probing:
		k.base = min(k.base, low)
	case m.full:
		k.base = min(k.base, max(low, k.base/2))
	case low < k.base:
		k.base -= (k.base - low) / 8
	case m.answers >= enough:
		k.base += (m.latency - min(k.base, m.latency)) / 16
	}
	if !m.full && (m.latency-k.base)*4 < m.latency {
		k.served = max(m.inFlight, k.served-k.served/64)
	}
}

// lowest reports whether the limit is too low to be halved.
func (k *knee) lowest() bool { return k.limit < k.least+milli }

// probe begins a probe. If the limit is too low to be halved, the probe doubles it.
func (k *knee) probe(at, slot int64) {
	k.probing, k.probed = true, k.base
	k.up = k.lowest()
	k.schedule(at, slot)
}

// forget ends a probe that has no result.
func (k *knee) forget() {
	k.probing, k.before, k.half = false, measure{}, measure{}
}

// remember keeps a window, with which the next probe is compared.
func (k *knee) remember(m measure, steady bool) {
	if steady && k.compare(m) == alike && k.before.latency > 0 {
		k.before = k.before.and(m)
		return
	}
	k.before = m
	if !steady {
		k.before.latency = 0
	}
}

// verdict is the result of a comparison of two windows.
type verdict int

const (
	alike   verdict = iota // both windows have about the same number of requests under way
	unclear                // there are too few samples
	waiting                // the window with more requests has the longer latency: requests waited
	free                   // both windows have the same latency: no requests waited
)

// compare compares a window with k.before.
func (k *knee) compare(m measure) verdict {
	a, b := k.before, m
	if a.inFlight < b.inFlight {
		a, b = b, a
	}
	apart := a.inFlight - b.inFlight
	if a.latency == 0 || b.latency == 0 || apart*20 < a.inFlight*3 {
		return alike
	}
	third := apart * 1_000_000 / max(a.rate, 1) / 3 // a third of the difference in latency that a queue would make
	err := sqrt(a.err*a.err+b.err*b.err) * 3 / 2
	switch longer := a.latency - b.latency; {
	case longer > third:
		return waiting
	case longer+err < third && longer-err > -third && !a.cut && !b.cut:
		return free
	}
	return unclear
}

// conclude ends a probe. A latency that does not fall with fewer requests under way is a lower bound of the base.
// If requests queue under half the limit, or did so according to the old base, another probe halves the limit
// again.
func (k *knee) conclude(m measure, failing bool, at int64) {
	old, slot := k.probed, k.slot()
	if m.cut || failing {
		k.forget()
		k.move(m, failing)
		k.schedule(at, probeEvery)
		return
	}
	if k.half.latency > 0 {
		m = k.half.and(m)
	}
	k.half, k.usual = measure{}, m.failed
	k.vain++
	switch k.compare(m) {
	case free:
		k.base = max(k.base, min(m.latency, k.before.latency))
		k.vain = 0
	case waiting:
		k.vain, k.served = 0, k.served/2
	case unclear:
		if k.half = m; m.span < patience*slot {
			k.vain--
			k.schedule(at, slot)
			return
		}
	}
	k.probed = k.base
	if (m.latency*2 > k.base*3 || k.base*5 < old*4 && k.limit >= 2*k.floor()) && k.limit >= 4*k.least {
		k.set(k.limit / 2)
		k.before, k.half = m, measure{}
		k.schedule(at, slot)
		return
	}
	k.probing = false
	if k.before.latency > 0 { // the probe of the first window has nothing to compare with
		k.move(k.before, false)
	}
	k.before = measure{full: m.full}
	if k.base*8 > old*9 || k.vain > 0 && k.lowest() {
		k.schedule(at+checkAfter, slot)
	} else {
		k.schedule(at, max(probeEvery, 32*slot))
	}
}

// floor returns the limit that is enough for the number of requests that were recently served without a queue.
func (k *knee) floor() int64 { return k.served*3/2 + root(k.served) }

// failing reports whether the limit should fall because the upstream fails more than usual. A fraction of failures
// becomes the usual one if it does not fall by half when the limit is halved, unless more than half of the answers
// are failures.
func (k *knee) failing(m measure) bool {
	switch {
	case m.failed*2 > milli:
		return true
	case m.failed*2 <= k.failed:
		k.failed = 0
		return false
	case m.failed*2 <= k.usual*3+2*tolerated:
		return false
	case k.failed == 0:
		k.failed, k.from = m.failed, k.limit
	case k.limit*2 <= k.from, k.lowest():
		k.usual, k.failed = m.failed, 0
		return false
	}
	return true
}

// move moves the limit toward the number of requests that keeps the upstream busy.
func (k *knee) move(m measure, failing bool) {
	wait := max(m.latency-k.base, 0)
	busy := max(m.inFlight-m.rate*wait/1_000_000, 0)
	want, limit := busy*3/2+root(k.limit), k.limit
	switch {
	case failing:
		limit = min(want, limit*9/10)
	case m.vain: // most clients give up, so the upstream may work for clients that have left
		limit = min(want, limit/2)
	case wait*4 < m.latency:
		limit = max(limit+root(limit)/2, min(want, limit*3/2))
	case wait > deep*k.base:
		limit = min(limit, max(want, limit/4))
	default:
		limit = min((want+limit)/2, limit*3/2)
	}
	if !failing {
		limit = max(limit, k.floor())
	}
	k.set(max(limit, k.limit/4))
}
