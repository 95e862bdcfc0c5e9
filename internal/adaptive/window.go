package adaptive

import (
	"math/bits"
	"time"
)

const (
	fine    = 4 // bits: a bucket is a sixteenth of an octave
	buckets = 29 << fine
)

// bucket returns the bucket of a latency in µs. Below 32 µs, each microsecond has a bucket; above, each octave has
// 16 buckets, up to 71 minutes.
func bucket(us int64) int {
	u := uint64(min(max(us, 0), 1<<32-1))
	shift := max(bits.Len64(u)-fine-1, 0)
	return shift<<fine + int(u>>shift)
}

// middle returns the latency in the middle of a bucket, in µs.
func middle(b int) int64 {
	shift := max(b>>fine-1, 0)
	return int64(b-shift<<fine)<<shift + int64(1)<<shift>>1
}

// window collects the answers between two steps of the limit.
type window struct {
	from     int64 // µs: requests sent before this time do not count, because the limit was different then
	open     int64 // µs: answers before this time do not count, because most requests that count have no answer yet
	end      int64 // µs
	seen     int64 // µs: the time of the latest answer
	exact    bool  // whether the window ends at the time of the field end, even with few samples
	answers  int64
	failed   int64
	lost     int64 // samples of requests that were abandoned or failed: the latency would have been longer
	late     int64 // samples that show a long queue
	inFlight int64 // the sum over the answers
	n        int64 // the number of samples of latency
	hist     [buckets]uint32
}

const (
	grid    = 250_000   // µs: windows end at multiples of this time, so that the windows of several limiters end together
	longest = 3_000_000 // µs: after this time, few samples are enough
	enough  = 100
	few     = 10
)

// add adds an answer.
func (w *window) add(sent, now time.Duration, inFlight int64, o Outcome, base, latency int64) {
	took := (now - sent).Microseconds()
	fast := o != OK && (latency == 0 || took < latency)
	if o == Abandoned { // a wait of twice the base shows a queue, even if the latest latency is longer
		fast = base == 0 || took < min(latency, 2*base)
	}
	if sent.Microseconds() < w.from || now.Microseconds() < w.open || o == Abandoned && fast {
		return
	}
	w.answers++
	w.seen = now.Microseconds()
	w.inFlight += inFlight
	if o == Failed {
		w.failed++
	}
	if !fast {
		w.hist[bucket(took)]++
		w.n++
		if o != OK {
			w.lost++
		}
		if base > 0 && took > (deep+1)*base {
			w.late++
		}
	}
}

// complete reports whether a window has enough samples. Fewer samples are enough if most of them show a long queue,
// if a probe is due, or after a long time.
func (w *window) complete(at, due, latency int64) bool {
	n := max(w.n, w.failed)
	switch {
	case w.exact:
		return at >= w.end
	case n >= enough, n >= 2*few && w.late*2 > n:
		return at >= w.end
	}
	return n >= few && (at >= due || at-w.open >= max(longest, latency))
}

// stale reports whether there was no answer for a long time. The first answers after such a time come from the
// fastest requests, and are not typical.
func (w *window) stale(at, latency int64) bool { return at-max(w.seen, w.open) > max(longest, latency) }

// start begins another window. If the limit has changed, the window opens only when the latency of the answers
// reflects the new limit.
func (w *window) start(at int64, changed bool, base, latency int64) {
	*w = window{from: w.from, open: at, seen: at}
	if changed {
		w.from = at
		w.open = at + 2*min(latency, 2*deep*base)
	}
	w.end = (w.open/grid + 1) * grid
}

// measure is the result of a window.
type measure struct {
	span     int64 // µs
	answers  int64
	failed   int64 // failed answers, in thousandths of the answers
	full     bool  // requests were denied
	vain     bool  // most requests were abandoned or would have taken longer
	cut      bool  // many requests would have taken longer: latency is only a lower bound
	inFlight int64 // the mean number of requests under way, in thousandths
	rate     int64 // answers a second, in thousandths
	latency  int64 // µs, 0 without samples
	err      int64 // µs: standard error of latency
}

func (w *window) measure(at int64, full bool) measure {
	m := measure{span: max(at-w.open, 1), answers: w.answers, failed: w.failed * milli / max(w.answers, 1), full: full, cut: w.lost*10 > w.n, vain: w.lost*2 > w.n}
	m.inFlight = w.inFlight * milli / max(w.answers, 1)
	m.rate = w.answers * milli * 1_000_000 / m.span
	m.latency, m.err = w.typical()
	return m
}

// and returns the measure of two windows together. The weight of the first window is bounded.
func (m measure) and(n measure) measure {
	a, b := min(m.answers, 6*enough), max(n.answers, 1)
	mean := func(x, y int64) int64 { return (x*a + y*b) / (a + b) }
	x, y := m.err*a/(a+b), n.err*b/(a+b)
	return measure{
		span: m.span + n.span, answers: a + b, failed: mean(m.failed, n.failed), full: n.full, cut: m.cut || n.cut,
		inFlight: mean(m.inFlight, n.inFlight), rate: mean(m.rate, n.rate), latency: mean(m.latency, n.latency), err: sqrt(x*x + y*y),
	}
}

// typical returns the mean of the fastest four fifths of the samples, and its standard error, which is computed
// from the winsorized samples.
func (w *window) typical() (mean, err int64) {
	keep := (w.n*4 + 4) / 5
	if keep == 0 {
		return 0, 0
	}
	var sum, squares, n, last int64
	for b := 0; n < keep; b++ {
		c := min(int64(w.hist[b]), keep-n)
		if c > 0 {
			last = middle(b)
			sum += c * last
			n += c
		}
	}
	mean = sum / keep
	center, unit := (sum+(w.n-keep)*last)/w.n, last>>12+1 // in this unit, the squares of deviations fit into an int64
	n = 0
	for b := 0; n < keep; b++ {
		c := min(int64(w.hist[b]), keep-n)
		d := (middle(b) - center) / unit
		squares += c * d * d
		n += c
	}
	d := (last - center) / unit
	squares += (w.n - keep) * d * d
	return mean, sqrt(squares) * unit * 5 / 4 / w.n
}
