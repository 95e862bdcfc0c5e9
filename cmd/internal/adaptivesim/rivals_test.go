package adaptivesim

import (
	"math"
	"slices"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/sluicehq/sluice/internal/adaptive"
)

// limiterGate is a Limiter in the simulation.
type limiterGate struct {
	*adaptive.Limiter
	ahead time.Duration // how far its clock is ahead
}

type limiterPermit struct {
	limiterGate
	sent time.Duration
}

func (g limiterGate) enter(now time.Duration, c adaptive.Class) permit {
	if !g.Enter(now+g.ahead, c, false) {
		return nil
	}
	return limiterPermit{g, now}
}

// head releases the permit, as the engine of package policy does when the head of a response arrives.
func (p limiterPermit) head(now time.Duration, o adaptive.Outcome) {
	p.Answered(p.sent+p.ahead, now+p.ahead, o)
	p.Leave()
}
func (p limiterPermit) leave(time.Duration) {}

// rival is a limit that the function learn adjusts. It treats classes as a Limiter does, so only the limits differ.
type rival struct {
	limit    float64
	inFlight int
	learn    func(r *rival, p rivalPermit, now time.Duration, o adaptive.Outcome)
}

type rivalPermit struct {
	*rival
	sent     time.Duration
	inFlight int
}

func (r *rival) enter(now time.Duration, c adaptive.Class) permit {
	limit, headroom := int(r.limit), int(math.Ceil(math.Sqrt(r.limit)))
	switch c {
	case adaptive.Sheddable:
		limit -= headroom
	case adaptive.Critical:
		limit += 2 * headroom
	}
	if r.inFlight >= limit {
		return nil
	}
	r.inFlight++
	return rivalPermit{r, now, r.inFlight}
}

func (p rivalPermit) head(now time.Duration, o adaptive.Outcome) {
	if p.learn != nil {
		p.learn(p.rival, p, now, o)
	}
}
func (p rivalPermit) leave(time.Duration) { p.rival.inFlight-- }

func fixed(limit float64) gate { return &rival{limit: limit} }

// gradient2 is Netflix's Gradient2Limit in a WindowedLimit, with the defaults of both.
func gradient2() gate {
	var n, most int
	var sum, fastest time.Duration
	var end time.Duration
	long, warm := 0.0, 0
	return &rival{limit: 20, learn: func(r *rival, p rivalPermit, now time.Duration, o adaptive.Outcome) {
		took := now - p.sent
		if n == 0 || took < fastest {
			fastest = took
		}
		n, sum, most = n+1, sum+took, max(most, p.inFlight)
		if now <= end {
			return
		}
		end = now + time.Second
		if n >= 10 {
			short := float64(sum) / float64(n)
			if warm++; warm <= 10 {
				long += (short - long) / float64(warm)
			} else {
				long += (short - long) * 2 / 601
			}
			if long > 2*short {
				long *= 0.95
			}
			if float64(most) >= r.limit/2 {
				gradient := max(0.5, min(1, 1.5*long/short))
				r.limit = max(20, min(200, r.limit*0.8+(r.limit*gradient+4)*0.2))
			}
		}
		n, sum, most = 0, 0, 0
	}}
}

// envoy is Envoy's gradient controller with its defaults and the intervals shown in its documentation.
func envoy() gate {
	const update, recalculate, least = 100 * time.Millisecond, 60 * time.Second, 3
	var samples []time.Duration
	var fastest, epoch, probe, next time.Duration
	probing, deferred, lows := true, 3.0, 0
	median := func() time.Duration {
		slices.Sort(samples)
		m := samples[len(samples)/2]
		samples = samples[:0]
		return m
	}
	return &rival{limit: least, learn: func(r *rival, p rivalPermit, now time.Duration, o adaptive.Outcome) {
		if p.sent < epoch || o != adaptive.OK {
			return
		}
		samples = append(samples, now-p.sent)
		switch {
		case probing && len(samples) >= 50:
			fastest, probing, r.limit, probe = median(), false, deferred, now+recalculate
			next = now + update
		case probing || now < next:
		case now >= probe || lows >= 5:
			probing, deferred, lows, r.limit, epoch, samples = true, r.limit, 0, least, now, samples[:0]
		default:
			next = now + update
			limit := r.limit * max(0.5, min(2, 1.25*float64(fastest)/float64(median())))
			if r.limit = math.Floor(max(least, min(1000, limit+math.Sqrt(limit)))); r.limit == least {
				lows++
			} else {
				lows = 0
			}
		}
	}}
}

// failsafeGate is the adaptive limiter of failsafe-go. It has no classes. It reads the clock, so its simulation runs in
// a synctest bubble and sleeps.
type failsafeGate struct {
	adaptivelimiter.AdaptiveLimiter[any]
}

type failsafePermit struct{ adaptivelimiter.Permit }

func (g failsafeGate) enter(time.Duration, adaptive.Class) permit {
	if p, ok := g.TryAcquirePermit(); ok {
		return &failsafePermit{p}
	}
	return nil
}

func (p *failsafePermit) head(_ time.Duration, o adaptive.Outcome) {
	if o == adaptive.Abandoned {
		p.Drop()
		p.Permit = nil
	}
}

func (p *failsafePermit) leave(time.Duration) {
	if p.Permit != nil {
		p.Record()
	}
}

func failsafe() gate { return failsafeGate{adaptivelimiter.NewWithDefaults[any]()} }
