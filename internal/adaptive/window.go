package adaptive

import (
	"math/bits"
	"time"
)

const (
	fine    = 4 // bits: a bucket is a sixteenth of an octave
	buckets = 29 << fine
)

// bucket returns the bucket of a latency in µs: exact below 32 µs, then 16 an octave, up to 71 minutes.
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

// A window collects what is measured between two steps of the limit.
type window struct {
	from     int64 // µs: requests sent before do not count, because the limit was another
	open     int64 // µs: answers before do not count, because most are missing of the requests sent since from
	n        int64 // samples of latency
	failed   int64
	inFlight int64 // sum over all answers
	hist     [buckets]uint32
}

const (
	shortest = 250_000 // µs
	usual    = 1_000_000
	longest  = 3_000_000
	enough   = 200 // samples
	few      = 10
)

// add adds an answer, and reports whether the window is complete.
func (w *window) add(latency int64, sent, now time.Duration, inFlight int64, o Outcome) bool {
	at, took := now.Microseconds(), (now - sent).Microseconds()
	if sent.Microseconds() < w.from || at < w.open {
		return false
	}
	w.inFlight += inFlight
	switch {
	case o == OK || took >= latency:
		w.hist[bucket(took)]++
		w.n++
	case o == Abandoned:
		w.inFlight -= inFlight
	}
	if o == Failed {
		w.failed++
	}
	n, age := max(w.n, w.failed), at-w.open
	return n >= enough && age >= shortest || n >= enough/2 && age >= usual || n >= few && age >= longest
}

// start begins another window. If the limit has changed, it waits until answers have the new latency.
func (w *window) start(now time.Duration, changed bool, latency int64) {
	*w = window{from: w.from, open: now.Microseconds()}
	if changed {
		w.from = w.open
		w.open += latency * 3 / 2
	}
}

// A measure is what a window has shown.
type measure struct {
	answers  int64
	failed   int64
	full     bool  // something was refused
	inFlight int64 // mean, in thousandths
	rate     int64 // answers a second, in thousandths
	latency  int64 // µs, 0 without samples
	err      int64 // µs: standard error of latency
}

func (w *window) measure(now time.Duration, full bool) measure {
	all := max(w.n, w.failed)
	m := measure{answers: all, failed: w.failed, full: full}
	m.inFlight = w.inFlight * milli / all
	m.rate = all * milli * 1_000_000 / max(now.Microseconds()-w.open, 1)
	m.latency, m.err = w.typical()
	return m
}

// typical returns the mean of the fastest four fifths and its standard error, which is that of the winsorized
// samples.
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
	center := (sum + (w.n-keep)*last) / w.n
	n = 0
	for b := 0; n < keep; b++ {
		c := min(int64(w.hist[b]), keep-n)
		d := middle(b) - center
		squares += c * min(d*d, 1<<40)
		n += c
	}
	squares += (w.n - keep) * min((last-center)*(last-center), 1<<40)
	return mean, sqrt(squares) * 5 / 4 / w.n
}
