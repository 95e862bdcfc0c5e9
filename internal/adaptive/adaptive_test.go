package adaptive

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// In random histories, the requests in flight are those that a simple count has, none is denied while there are fewer
// than Least, and none is allowed if a higher class would be denied.
func TestHistories(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := New(Config{Least: 3, Most: 50})
		var now time.Duration
		var sent []time.Duration
		for range 20_000 {
			now += time.Duration(r.Int64N(int64(5 * time.Millisecond)))
			if r.IntN(3) > 0 {
				class, force := Class(1+r.IntN(3)), r.IntN(10) == 0
				fits := l.Enter(now, class, force)
				if n := len(sent); !fits && n < 3 || fits && n >= 150 {
					t.Fatalf("seed %d: with %d in flight, fits is %v", seed, n, fits)
				}
				for higher := class; higher <= Critical; higher++ {
					if fits && int64(len(sent)) >= l.caps[higher].Load() {
						t.Fatalf("seed %d: class %d was allowed, but class %d is denied", seed, class, higher)
					}
				}
				if fits || force {
					sent = append(sent, now)
				}
			} else if n := len(sent); n > 0 {
				i := r.IntN(n)
				l.Answered(sent[i], now, Outcome(r.IntN(3)))
				l.Leave()
				sent[i] = sent[n-1]
				sent = sent[:n-1]
			}
			if s := l.State(now); s.InFlight != int64(len(sent)) || s.Limit < 3 || s.Limit > 50 {
				t.Fatalf("seed %d: %d in flight: %+v", seed, len(sent), s)
			}
		}
	}
}

// A clock that stands still or goes back does no harm.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	l := New(Config{})
	for i := range 10_000 {
		now := time.Duration(i%7) * time.Millisecond
		if l.Enter(now, Normal, false) {
			l.Answered(now+time.Millisecond, now, OK)
			l.Leave()
		}
	}
	if s := l.State(0); s.InFlight != 0 || s.Limit < defaultLeast {
		t.Errorf("afterwards: %+v", s)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	const most = 8
	l := New(Config{Most: most})
	start := time.Now()
	var wg sync.WaitGroup
	var inside, passed atomic.Int64
	for range 24 {
		wg.Go(func() {
			for range 2_000 {
				now := time.Since(start)
				if !l.Enter(now, Sheddable, false) {
					continue
				}
				if inside.Add(1) > most {
					t.Error("more than Most are in flight")
				}
				passed.Add(1)
				l.Answered(now, time.Since(start), OK)
				l.State(now)
				inside.Add(-1)
				l.Leave()
			}
		})
	}
	wg.Wait()
	if s := l.State(time.Since(start)); s.InFlight != 0 || passed.Load() == 0 {
		t.Errorf("%d were allowed: %+v", passed.Load(), s)
	}
}

// A bucket is at most a sixteenth wide, and the buckets follow each other without a gap.
func TestBuckets(t *testing.T) {
	t.Parallel()
	last := 0
	for us := int64(0); us < 1<<33; us += us/64 + 1 {
		b := bucket(us)
		if b < last || b > last+1 || b >= buckets {
			t.Fatalf("%d µs are in bucket %d after %d", us, b, last)
		}
		if m := middle(b); us < 1<<32 && (m-us > us/32 || us-m > us/32) {
			t.Fatalf("%d µs are in the bucket of %d", us, m)
		}
		last = b
	}
}

func BenchmarkRequest(b *testing.B) {
	request := func(l *Limiter, now time.Duration) {
		if l.Enter(now, Normal, false) {
			l.Answered(now-20*time.Millisecond, now, OK)
			l.Leave()
		}
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		l := New(Config{})
		for i := range b.N {
			request(l, time.Duration(i)*time.Microsecond)
		}
	})
	b.Run("of 8 goroutines", func(b *testing.B) {
		b.ReportAllocs()
		l := New(Config{})
		var i atomic.Int64
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			now := time.Duration(i.Add(1))
			for pb.Next() {
				now += time.Microsecond
				request(l, now)
			}
		})
	})
}

// Requests to an upstream that is down from the start, and requests of clients that leave at once, give no latency.
func TestFastFailures(t *testing.T) {
	t.Parallel()
	for _, o := range []Outcome{Failed, Abandoned} {
		l, now := New(Config{}), time.Duration(0)
		for range 1000 {
			now += 10 * time.Millisecond
			l.Enter(now, Normal, false)
			l.Answered(now-time.Millisecond, now, o)
			l.Leave()
		}
		if s := l.State(now); s.Base != 0 || s.Latency != 0 || s.Limit != firstLimit {
			t.Errorf("outcome %d: %+v", o, s)
		}
	}
}

// With few requests, the reported latency is that of the latest request.
func TestLatencyOfFewRequests(t *testing.T) {
	t.Parallel()
	l := New(Config{})
	for i := range 20 {
		now, took := time.Duration(i)*10*time.Second, time.Duration(10+i)*time.Millisecond
		l.Enter(now, Normal, false)
		l.Answered(now, now+took, OK)
		l.Leave()
		if s := l.State(now + took); s.Latency != took {
			t.Fatalf("request %d took %v: %+v", i, took, s)
		}
	}
}

// The typical latency is the mean of the fastest four fifths. Its error is the standard deviation over many such
// windows.
func TestTypical(t *testing.T) {
	t.Parallel()
	for _, mean := range []time.Duration{300 * time.Microsecond, 20 * time.Millisecond, 20 * time.Second} {
		for name, draw := range map[string]func(*rand.Rand) time.Duration{
			"lognormal": func(r *rand.Rand) time.Duration {
				return time.Duration(float64(mean) * math.Exp(r.NormFloat64()/2-1./8))
			},
			"exponential": func(r *rand.Rand) time.Duration { return time.Duration(float64(mean) * r.ExpFloat64()) },
		} {
			r := rand.New(rand.NewPCG(1, 2))
			var sum, squares, errs float64
			const windows, samples = 1000, 200
			for range windows {
				var w window
				for range samples {
					w.add(0, draw(r), 1, OK, 0, 0)
				}
				m := w.measure(1, false)
				sum += float64(m.latency)
				squares += float64(m.latency) * float64(m.latency)
				errs += float64(m.err)
			}
			center := sum / windows
			deviation := math.Sqrt(squares/windows - center*center)
			if got := errs / windows; got < 0.85*deviation || got > 1.15*deviation {
				t.Errorf("%s, %v: the errors are %.0f µs, and the deviation is %.0f µs", name, mean, got, deviation)
			}
		}
	}
}

// Requests of clients that have left count for as long again as the clients waited, even if no request was answered or
// denied since.
func TestOrphansAreSwept(t *testing.T) {
	t.Parallel()
	l, now := New(Config{}), time.Second
	for range 90 {
		l.Enter(now, Critical, true)
	}
	now += 2 * time.Second
	for range 90 {
		l.Answered(now-2*time.Second, now, Abandoned)
		l.Leave()
	}
	if now += time.Second; !l.Fits(now, Normal) {
		t.Error("with fewer than Least in flight, a request does not fit")
	}
	for range 4 {
		l.Enter(now, Critical, false)
	}
	if l.Fits(now, Critical) {
		t.Error("a request fits a second after 90 clients left, each of which waited 2 s")
	}
	for now += 2 * time.Second; l.State(now).InFlight < 12; {
		if !l.Fits(now, Critical) || !l.Enter(now, Critical, false) {
			t.Fatalf("3 s after 90 clients left, a request is denied with %d in flight", l.State(now).InFlight)
		}
	}
}

// The base latency of a limiter is that of its first requests, whatever the clock shows. The requests are sent after
// they enter.
func TestFirstBase(t *testing.T) {
	t.Parallel()
	for _, start := range []time.Duration{0, 1_795_900_000 * time.Second} {
		l := New(Config{})
		for i := range 64 {
			l.Enter(start+time.Duration(i)*time.Millisecond, Normal, false)
		}
		for i := range 64 { // 8 at a time
			sent := start + time.Duration(i)*time.Millisecond + time.Microsecond
			now := start + time.Duration(100*(i/8+1))*time.Millisecond
			l.Answered(sent, now, OK)
			l.Leave()
		}
		if base := l.State(start + time.Second).Base; base < 80*time.Millisecond || base > 160*time.Millisecond {
			t.Errorf("from %v: the base is %v", start, base)
		}
	}
}
