package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

const (
	stepsPerScene        = 1000
	scenesPerMonthly     = 5 // in one scene of 5, fixed windows are calendar months
	scenesPerPermits     = 4 // in one scene of 4, periods are about as long as a permit lasts
	subjectsPerAlgorithm = 3
	longestPeriod        = 30 * 24 * time.Hour
	earliest, latest     = 1_000_000_000_000_000, 2_000_000_000_000_000 // 2001 to 2033
)

// history generates random Takes. A scene has few subjects, with periods of the same order of magnitude, so that
// all of them are often near their limits.
type history struct {
	rng      *rand.Rand
	now      int64
	scene    int
	monthly  bool
	subjects []*subject
	locks    map[string][]*sluice.Plan // the penalties of each key
	once     *sluice.Plan
	permits  []*subject // subjects with permits in flight or distinct values
	held     []taken    // the latest permits and values that were taken
	promised int64      // when a denied charge will fit
	tick     int64      // the tick of that charge's plan
}

// subject is a key with a limit that changes now and then.
type subject struct {
	key   string
	plans []*sluice.Plan // the plans that the subject can have; all have one fingerprint
	plan  *sluice.Plan   // the present plan
}

func (s *subject) same(o *subject) bool {
	return s.key == o.key && s.plan.Fingerprint == o.plan.Fingerprint
}

func newHistory(seed uint64) *history {
	return &history{rng: rand.New(rand.NewPCG(seed, seed)), now: 1_700_000_000_000_000}
}

// taken has the time at which a permit or a value was taken, and the time for which it is held, in microseconds.
type taken struct{ at, lasts int64 }

// newScene chooses new subjects, with new keys.
func (h *history) newScene() {
	h.scene++
	h.subjects = h.subjects[:0]
	h.locks = map[string][]*sluice.Plan{}
	scale := h.spread(1, float64(longestPeriod.Microseconds()))
	h.monthly = h.scene%scenesPerMonthly == 0
	switch {
	case h.monthly:
		scale = float64(longestPeriod.Microseconds()) / 10
	case h.scene%scenesPerPermits == 1:
		scale = h.spread(0.1, 10) * float64(lasts)
	}
	h.once = h.newOnce(scale)
	for _, a := range sluice.Algorithms() {
		for i := range subjectsPerAlgorithm {
			s := h.newSubject(a, scale)
			s.key = fmt.Sprintf("scene %d, subject %d", h.scene, i)
			// The first subjects of all algorithms share a key, except those that would share a state.
			if i > 0 || slices.ContainsFunc(h.subjects, s.same) {
				s.key += ", " + a.String()
			}
			h.subjects = append(h.subjects, s)
			if h.rng.IntN(5) == 0 && h.locks[s.key] == nil {
				h.locks[s.key] = []*sluice.Plan{h.newLock(scale), h.newLock(scale), h.newLock(scale)}
			}
		}
	}
	// The first subject with permits, and all subjects with values, share keys with limits.
	h.permits, h.held = h.permits[:0], h.held[:0]
	for i := range subjectsPerAlgorithm {
		key := h.subjects[0].key
		if i > 0 {
			key = fmt.Sprintf("scene %d, permits %d", h.scene, i)
		}
		h.permits = append(h.permits, h.newInFlight(key))
	}
	for i := range subjectsPerAlgorithm {
		key := h.subjects[i].key
		h.permits = append(h.permits, h.newValues(key, scale))
	}
}

// newValues chooses how many distinct values a key may have in a period of about scale microseconds, and other such
// numbers for changes of the limit.
func (h *history) newValues(key string, scale float64) *subject {
	period := min(max(int64(h.spread(scale/10, scale*10)), 1), longestPeriod.Microseconds())
	return h.newPermits(key, func(n int64) (*sluice.Plan, error) {
		return sluice.NewDistinct(sluice.Limit{Count: n, Period: time.Duration(period) * time.Microsecond})
	})
}

// lasts is how long a permit is held, in microseconds.
const lasts = int64(kernel.PermitLasts / time.Microsecond)

// newInFlight chooses the number of permits in flight of a key, and other numbers for changes of the limit.
func (h *history) newInFlight(key string) *subject {
	return h.newPermits(key, sluice.NewInFlight)
}

// newPermits chooses the number of permits or values of a key, and other numbers for changes of the limit.
func (h *history) newPermits(key string, plan func(n int64) (*sluice.Plan, error)) *subject {
	s := &subject{key: key}
	for len(s.plans) < 4 {
		n := h.about(2)
		p, err := plan(n)
		if err != nil {
			panic(fmt.Sprintf("%d permits: %v", n, err))
		}
		s.plans = append(s.plans, p)
	}
	s.plan = s.plans[0]
	return s
}

// permit generates a charge of a permit or a value. It chooses among slightly more permits than the limit allows,
// so that some are taken again and some are denied.
func (h *history) permit() sluice.Charge {
	s := h.permits[h.rng.IntN(len(h.permits))]
	if h.rng.IntN(50) == 0 {
		s.plan = s.plans[h.rng.IntN(len(s.plans))]
	}
	numbers := 3 * s.plan.Capacity
	if s.plan.Kernel == kernel.Distinct {
		numbers = s.plan.Capacity + 1
	}
	c := sluice.Charge{Key: s.key, Plan: s.plan, Cost: 1, Permit: h.rng.Uint64N(uint64(numbers))}
	switch n := h.rng.IntN(100); {
	case n < 15:
		c.Cost = -1
	case n < 20:
		c.Cost = 0
	case n == 20:
		c.Cost = sluice.All
	case n == 21:
		c.Cost = -1 - h.upTo(1e9)
	case n == 22:
		c.Cost = 2 + h.upTo(1e9)
	case n == 23:
		c.Permit = ^c.Permit
	}
	return c
}

// nearEnd moves the clock to the moment at which a permit or value expires, or so far back that the permit or value
// no longer counts. It does nothing if the time for which the permit is held and the period differ too much.
func (h *history) nearEnd(period int64) {
	if len(h.held) == 0 {
		return
	}
	held := h.held[h.rng.IntN(len(h.held))]
	if period <= held.lasts/10 || 10*held.lasts <= period {
		return
	}
	h.now = held.at + held.lasts - h.upTo(1)
	if h.rng.IntN(5) == 0 {
		h.now = held.at - held.lasts - h.upTo(1)
	}
}

// newSubject chooses a limit with a period of about scale microseconds, and more limits with the same fingerprint.
func (h *history) newSubject(a sluice.Algorithm, scale float64) *subject {
	s := new(subject)
	for s.plan == nil {
		s.plan, _ = sluice.NewPlan(h.limit(a, scale))
	}
	s.plans = []*sluice.Plan{s.plan}
	for range 3 {
		l := s.plan.Limit
		if a <= sluice.GCRA {
			l.Burst = h.about(l.Burst)
		} else {
			l.Count = h.about(l.Count)
		}
		if p, err := sluice.NewPlan(l); err == nil && p.Fingerprint == s.plan.Fingerprint {
			s.plans = append(s.plans, p)
		}
	}
	if h.rng.IntN(2) == 0 { // some plans keep debts
		for i, p := range s.plans {
			if with, err := p.WithMost(p.Capacity + h.upTo(4*p.Capacity)); err == nil {
				s.plans[i] = with
			}
		}
		s.plan = s.plans[0]
	}
	return s
}

// limit chooses a limit of at most one unit a microsecond, or a log with so large a count that it does not keep
// single units.
func (h *history) limit(a sluice.Algorithm, scale float64) sluice.Limit {
	period := int64(h.spread(scale/10, scale*10))
	period = min(max(period, 1), longestPeriod.Microseconds())
	if unit := []int64{1, 1000, 1_000_000, 60_000_000}[h.rng.IntN(4)]; period > unit {
		period -= period % unit
	}
	most := min(period, 2000)
	if h.rng.IntN(8) == 0 {
		most = min(period, 1_000_000_000)
	}
	l := sluice.Limit{Algorithm: a, Period: time.Duration(period) * time.Microsecond}
	l.Count = int64(h.spread(1, float64(most)))
	if a == sluice.SlidingWindowLog && h.rng.IntN(3) == 0 {
		l.Count = int64(h.spread(kernel.FineLogCount+1, 1<<31))
	}
	if a == sluice.FixedWindow && h.monthly {
		l.Period, l.MonthDay = 0, 1+h.rng.IntN(31)
	}
	if a <= sluice.GCRA && h.rng.IntN(2) == 0 {
		l.Burst = h.about(l.Count)
	}
	return l
}

// about returns a number of the same order of magnitude as n, at least 1.
func (h *history) about(n int64) int64 { return max(1, int64(h.spread(float64(n)/4, float64(n)*4))) }

// spread returns a number between lo and hi, with all orders of magnitude equally likely.
func (h *history) spread(lo, hi float64) float64 {
	return lo * math.Pow(hi/lo, h.rng.Float64())
}

// upTo returns a number from 0 to n.
func (h *history) upTo(n int64) int64 { return h.rng.Int64N(n + 1) }

// next generates a Take.
func (h *history) next() step {
	charges := make([]sluice.Charge, 1)
	if h.rng.IntN(2) == 0 {
		charges = make([]sluice.Charge, 2+h.rng.IntN(7))
	}
	alone := h.rng.IntN(20) == 0 // charge a single permit, as when it is extended
	for i, n := range h.rng.Perm(len(h.subjects))[:len(charges)] {
		s := h.subjects[n]
		if h.rng.IntN(100) == 0 {
			s.plan = s.plans[h.rng.IntN(len(s.plans))]
		}
		charges[i] = sluice.Charge{Key: s.key, Plan: s.plan, Cost: h.cost(s.plan.Capacity), Shadow: h.rng.IntN(8) == 0}
	}
	h.move(charges[0].Plan)
	switch n := h.rng.IntN(8); {
	case alone:
		charges = append(charges[:0], h.permit())
	case n == 0:
		charges = append(charges, h.onceCharge())
	case n < 4:
		c := h.permit()
		c.Shadow = h.rng.IntN(4) > 0 // otherwise this charge would cause most of the denials
		charges = slices.Insert(charges, h.rng.IntN(len(charges)+1), c)
	}
	for i := range charges {
		if c := &charges[i]; c.Cost > 0 && !c.Plan.Kernel.Permits() && !c.Plan.Once {
			c.Owe = h.rng.IntN(8) == 0
		}
		if charges[i].Cost < 0 && h.rng.IntN(4) == 0 {
			charges[i].Until = h.now + h.upTo(2) - 1
		}
	}
	return step{now: h.now, charges: h.withLocks(charges)}
}

// onceCharge generates a charge of an ID that can be committed once.
func (h *history) onceCharge() sluice.Charge {
	c := sluice.Charge{Key: fmt.Sprintf("scene %d, question %d", h.scene, h.rng.IntN(5)), Plan: h.once, Cost: 1}
	if h.rng.IntN(10) == 0 {
		c.Cost = h.upTo(3) - 1
	}
	return c
}

// newOnce chooses the period, at most scale microseconds, in which an ID can be committed once.
func (h *history) newOnce(scale float64) *sluice.Plan {
	micros := min(max(1, int64(h.spread(scale*0.01, scale))), longestPeriod.Microseconds())
	plan, err := sluice.NewOnce(time.Duration(micros) * time.Microsecond)
	if err != nil {
		panic(fmt.Sprintf("%d µs: %v", micros, err))
	}
	return plan
}

// newLock chooses a penalty that lasts about scale microseconds.
func (h *history) newLock(scale float64) *sluice.Plan {
	length := func(lo, hi float64) time.Duration {
		micros := min(max(1, int64(h.spread(scale*lo, scale*hi))), 3*longestPeriod.Microseconds())
		return time.Duration(micros) * time.Microsecond
	}
	p := sluice.Penalty{First: length(0.01, 1)}
	if h.rng.IntN(3) > 0 {
		p.Factor = 2 + h.upTo(3)
		p.Most, p.Forget = max(p.First, length(0.1, 10)), length(0.1, 10)
	}
	plan, err := p.Plan()
	if err != nil {
		panic(fmt.Sprintf("%+v: %v", p, err))
	}
	return plan
}

// withLocks adds the penalties of the keys of charges, mostly after the charges that cause an offence when denied.
func (h *history) withLocks(charges []sluice.Charge) []sluice.Charge {
	limits := slices.Clone(charges)
	done := map[string]bool{}
	for i, c := range limits {
		plans := h.locks[c.Key]
		if plans == nil || done[c.Key] || h.rng.IntN(4) == 0 {
			continue
		}
		done[c.Key] = true
		if h.rng.IntN(50) == 0 {
			plans[0], plans[1], plans[2] = plans[1], plans[2], plans[0]
		}
		lock := sluice.Charge{Key: c.Key, Plan: plans[0], Cost: h.lockCost(c.Cost), Shadow: c.Shadow != (h.rng.IntN(20) == 0)}
		at := len(charges)
		if h.rng.IntN(3) == 0 {
			at = i + h.rng.IntN(len(charges)-i+1)
		}
		charges = slices.Insert(charges, at, lock)
	}
	return charges
}

// lockCost returns the cost of the charge of a penalty, given the cost of the charge of its limit.
func (h *history) lockCost(cost int64) int64 {
	switch n := h.rng.IntN(40); {
	case n == 0:
		return sluice.All
	case n == 1:
		return -1 - h.upTo(3)
	case n == 2:
		return 1 + h.upTo(1e9)
	case n == 3 || cost == 0:
		return 0
	}
	return 1
}

func (h *history) cost(capacity int64) int64 {
	switch n := h.rng.IntN(100); {
	case n < 45:
		return 1 + h.upTo(capacity/8)
	case n < 70:
		return 1
	case n < 80:
		return 1 + h.upTo(capacity-1)
	case n < 83:
		return capacity
	case n < 85:
		return capacity + 1
	case n < 86:
		return math.MaxInt64
	case n < 92:
		return 0
	case n < 98:
		return -1 - h.upTo(capacity/8)
	case n < 99:
		return -1 - h.upTo(3*capacity)
	}
	return sluice.All
}

// move moves the clock forward or back by a time that matters to a plan, such as to the edge of a window.
func (h *history) move(p *sluice.Plan) {
	period := p.Limit.Period.Microseconds()
	switch n := h.rng.IntN(1000); {
	case n < 8:
		h.nearEnd(period)
	case n < 300:
	case n < 650:
		h.now += h.upTo(period / 8)
	case n < 750:
		h.now += h.upTo(p.Tick * max(2, period/p.Tick/p.Limit.Count))
	case n < 800:
		h.now += h.upTo(2 * period)
	case n < 850:
		h.now = nextEdge(p, h.now) - h.upTo(2)
	case n < 920 && h.promised > h.now:
		h.now = h.promised - h.tick*h.upTo(1)
	case n < 950:
		h.now -= h.upTo(period / 50)
	case n < 970:
		h.now -= h.upTo(period)
	case n < 985:
		h.now -= period * h.upTo(3)
	case n < 988:
		h.now -= h.upTo(100 * period)
	case n < 995:
		h.now += h.upTo(100 * period)
	}
	h.now = min(max(h.now, earliest), latest)
}

// nextEdge returns when the window that contains the time now ends.
func nextEdge(p *sluice.Plan, now int64) int64 {
	if day := p.Limit.MonthDay; day > 0 {
		return monthEdge(monthAt(now, day), day)
	}
	period := p.Limit.Period.Microseconds()
	return now + period - now%period
}

// learn records when the first charge of a step that does not fit will fit.
func (h *history) learn(s step) {
	for i, c := range s.charges {
		if c.Plan.Kernel.Permits() {
			if c.Cost == 1 && s.receipts[i].Fits {
				h.held = append(h.held[max(0, len(h.held)-20):], taken{s.now, c.Plan.Span})
			}
			continue
		}
		if d := c.Plan.Decide(c.Cost, s.receipts[i]); !d.Allowed && d.RetryAfter != sluice.Never {
			h.promised, h.tick = s.now+d.RetryAfter.Microseconds(), c.Plan.Tick
			return
		}
	}
}
