package policy

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// sharedBy returns a policy with one limit that tenants share. A header names the tenant.
func sharedBy(of, onError string) Document {
	return Document{
		Tiers: Tiers{From: "header:X-Plan"},
		Rules: []Rule{{Name: "api", OnError: onError, Share: Share{
			Of: of, By: []string{"header:X-Tenant"}, Weights: map[string]int64{"pro": 3, "big": 10},
		}}},
	}
}

func tenantOf(name, tier string) *Request {
	return &Request{Header: http.Header{"X-Tenant": {name}, "X-Plan": {tier}}}
}

// caller is a tenant that sends requests at even intervals.
type caller struct {
	name, tier string
	rate       float64       // requests a second
	burst      int           // number of requests that come at once; 0 means 1
	from, to   time.Duration // to: 0 means the end of the run
	phase      float64       // offset of the first request, as a fraction of the interval
	only       int           // number of the engine that it calls, from 1 on; 0 means any

	next          time.Duration
	asked, passed []float64 // numbers of requests in each second
}

func (c *caller) weight() float64 {
	return map[string]float64{"pro": 3, "big": 10}[c.tier] + map[bool]float64{true: 1}[c.tier != "pro" && c.tier != "big"]
}

func (c *caller) every() time.Duration {
	return time.Duration(float64(max(c.burst, 1)) / c.rate * float64(time.Second))
}

// got returns the number of requests a second that have passed between two seconds.
func (c *caller) got(from, to int) float64 { return mean(c.passed[from:to]) }

func mean(all []float64) (sum float64) {
	for _, n := range all {
		sum += n
	}
	return sum / float64(len(all))
}

// fleet is a number of engines over one store. If there are several, they exchange their demand.
type fleet struct {
	engines []*Engine
	store   *testStore
	off     []time.Duration // by how much the clock of each engine is ahead
	list    string          // requests come in lists: in "any" order, "flood first" or "flood last"
	tick    time.Duration   // time between decisions; 0 means a millisecond
	random  *rand.Rand      // chooses the engine; nil means each in turn
	turn    int
}

// newFleet returns engines that share a store. With onError, each has a fallback for outages of the store.
func newFleet(t *testing.T, n int, of string, onError ...string) *fleet {
	t.Helper()
	p := compile(t, sharedBy(of, strings.Join(onError, "")))
	f := &fleet{store: &testStore{Store: memory.New()}, off: make([]time.Duration, n)}
	for range n {
		store := sluice.Store(f.store)
		if onError != nil {
			fallback := failover.New(failover.Bulkhead(f.store, 0), failover.Config{Instances: n, Logger: slog.New(slog.DiscardHandler)})
			t.Cleanup(func() { fallback.Close() })
			store = fallback
		}
		f.engines = append(f.engines, NewEngine(store, p))
	}
	return f
}

// now returns the time of an engine, or the zero time if its clock is right.
func (f *fleet) now(engine int) (at time.Time) {
	if f.off[engine] != 0 {
		at = time.Now().Add(f.off[engine])
	}
	return at
}

func (f *fleet) talk() {
	var summary [][]byte
	for i, e := range f.engines {
		summary = append(summary, e.Demand(time.Now().Add(f.off[i])))
	}
	for i, e := range f.engines {
		others := slices.Delete(slices.Clone(summary), i, i+1)
		others = slices.DeleteFunc(others, func(post []byte) bool { return post == nil })
		e.ReceiveDemand(time.Now().Add(f.off[i]), others)
	}
}

// serve sends the requests of the callers for some time. It calls each before the decisions of each moment. It returns
// the total number of requests that have passed in each second.
func (f *fleet) serve(t *testing.T, callers []*caller, lasts time.Duration, each func(at time.Duration)) (total []float64) {
	t.Helper()
	start, seconds := time.Now(), int(lasts/time.Second)
	for _, c := range callers {
		c.asked, c.passed = make([]float64, seconds), make([]float64, seconds)
		c.next = c.from + time.Duration(c.phase*float64(c.every()))
	}
	total = make([]float64, seconds)
	f.tick = max(f.tick, time.Millisecond)
	for at := time.Duration(0); at < lasts; at += f.tick {
		time.Sleep(at - time.Since(start))
		if each != nil {
			each(at)
		}
		if len(f.engines) > 1 && at%(250*time.Millisecond) == 0 {
			f.talk()
		}
		due := f.due(callers, at)
		for i, d := range f.decide(t, due) {
			c, second := due[i], at/time.Second
			c.asked[second]++
			if d.Allowed {
				c.passed[second]++
				total[second]++
			}
		}
	}
	time.Sleep(lasts - time.Since(start))
	return total
}

// due returns the callers with requests at a time, once for each request.
func (f *fleet) due(callers []*caller, at time.Duration) (due []*caller) {
	for _, c := range callers {
		for ; c.next <= at && (c.to == 0 || c.next < c.to); c.next += c.every() {
			due = append(due, slices.Repeat([]*caller{c}, max(c.burst, 1))...)
		}
	}
	if f.random != nil {
		f.random.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	}
	rank := func(c *caller) int {
		return map[bool]int{true: map[string]int{"flood first": -1, "flood last": 1}[f.list]}[c.name == "flood"]
	}
	slices.SortStableFunc(due, func(a, b *caller) int { return rank(a) - rank(b) })
	return due
}

func (f *fleet) decide(t *testing.T, due []*caller) []Decision {
	reqs, ds := make([]*Request, len(due)), make([]Decision, len(due))
	for i, c := range due {
		reqs[i] = tenantOf(c.name, c.tier)
	}
	if f.list != "" {
		f.engines[0].DecideEach(t.Context(), reqs, ds)
		return ds
	}
	for i, c := range due {
		f.turn++
		engine := f.turn % len(f.engines)
		if f.random != nil {
			engine = f.random.IntN(len(f.engines))
		}
		if c.only > 0 {
			engine = c.only - 1
		}
		reqs[i].Time = f.now(engine)
		ds[i] = f.engines[engine].Decide(t.Context(), reqs[i])
	}
	return ds
}

// checkShares checks that the limit is used between two seconds, and that each caller gets what it requests, up to its
// allocation of the rate, with a tolerance of 5 % and one request.
func checkShares(t *testing.T, when string, callers []*caller, rate float64, from, to int) {
	t.Helper()
	used, weights := 0.0, 0.0
	for _, c := range callers {
		weights += c.weight()
		used += c.got(from, to)
	}
	if used < 0.97*rate {
		t.Errorf("%s: %v a second passed from %d s to %d s", when, used, from, to)
	}
	for _, c := range callers {
		want := min(mean(c.asked[from:to]), rate*c.weight()/weights)
		if got := c.got(from, to); got < 0.95*want-1 {
			t.Errorf("%s: %s got %v a second from %d s to %d s, want %v: %v of %v", when, c.name, got, from, to, want, c.passed, c.asked)
		}
	}
}

// checkTotal checks that no more has passed than the limit and its burst.
func checkTotal(t *testing.T, total []float64, rate float64) {
	t.Helper()
	sum := 0.0
	for s, n := range total {
		if sum += n; sum > rate*float64(s+2) {
			t.Errorf("%v passed in the first %d seconds of a limit of %v", sum, s+1, rate)
		}
	}
}

// jain returns Jain's index of fairness: 1 if all values are the same.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// A hundred tenants with three weights get their allocations. Each of them requests its allocation times a factor, and
// one tenant a hundred times its allocation.
func TestShareAmongHundred(t *testing.T) {
	t.Parallel()
	for engines, all := range map[int][]float64{1: {1, 1.2, 2, 5}, 2: {2}, 4: {3}} {
		for _, times := range all {
			virtually(t, fmt.Sprintf("%d engines, %v times", engines, times), func(t *testing.T) { testShareAmongHundred(t, engines, times) })
		}
	}
}

func testShareAmongHundred(t *testing.T, engines int, times float64) {
	const rate, settled, seconds = 1000, 2, 10
	var all []*caller
	weights := 0.0
	for i := range 100 {
		all = append(all, &caller{name: fmt.Sprintf("t%02d", i), tier: []string{"free", "pro", "big"}[i%3], phase: float64(i*37%100) / 100})
		weights += all[i].weight()
	}
	for i, c := range all {
		if c.rate = rate * c.weight() / weights * times; i == 0 {
			c.rate *= 100 / times
		}
	}
	total := newFleet(t, engines, "1000/second").serve(t, all, seconds*time.Second, nil)
	checkTotal(t, total, rate)
	checkShares(t, "in all", all, rate, settled, seconds)
	var shares []float64
	for i, c := range all {
		shares = append(shares, c.got(settled, seconds)/c.weight())
		part := rate * c.weight() / weights
		for from := settled; from+2 <= seconds && i > 0; from++ {
			// Fractions of a request do not pass, and may be due at the end.
			if got := 2 * c.got(from, from+2); got < 0.95*2*part-1.2 {
				t.Errorf("%s got %v from %d s to %d s, and its allocation is %.1f: %v of %v", c.name, got, from, from+2, 2*part, c.passed, c.asked)
			}
		}
	}
	if j := jain(shares); j < 0.98 {
		t.Errorf("Jain's index by weight is %.4f", j)
	}
}

// Of two tenants, one floods the limit in several ways, and the other one still gets its half.
func TestShareOfTwo(t *testing.T) {
	t.Parallel()
	for name, flood := range map[string]caller{
		"steady":             {rate: 4_000},
		"at once each epoch": {rate: 4_000, burst: 1_000},
		"late in each epoch": {rate: 4_000, burst: 1_000, phase: 0.95},
		"each second":        {rate: 4_000, burst: 4_000},
		"every third second": {rate: 4_000, burst: 14_000},
		"from second 2 on":   {rate: 4_000, from: 2 * time.Second},
	} {
		for _, of := range []string{"1000/second", "1000/second burst 100"} {
			virtually(t, name+" of "+of, func(t *testing.T) {
				flood := flood
				flood.name = "flood"
				steady := &caller{name: "steady", rate: 495, phase: 0.5}
				total := newFleet(t, 1, of).serve(t, []*caller{&flood, steady}, 6*time.Second, nil)
				for s := int((flood.from + 2*time.Second) / time.Second); s < len(total); s++ {
					if steady.passed[s] < 0.95*steady.asked[s] {
						t.Errorf("in second %d, %v of %v passed: %v of %v", s, steady.passed[s], steady.asked[s], steady.passed, total)
					}
				}
			})
		}
	}
}

// Engines divide the limit by the demand at all engines. Alone, each of the two engines would have enough for its
// tenant.
func TestShareReceivesDemand(t *testing.T) {
	virtual(t, func(t *testing.T) {
		all := []*caller{{name: "a", rate: 700, only: 1}, {name: "b", tier: "pro", rate: 900, only: 2, phase: 0.5}}
		newFleet(t, 2, "1000/second").serve(t, all, 8*time.Second, nil)
		near(t, "received", all[0], 3, 8, 250)
		near(t, "received", all[1], 3, 8, 750)
	})
}

func near(t *testing.T, what string, c *caller, from, to int, want float64) {
	t.Helper()
	if got := c.got(from, to); got < 0.95*want || got > 1.05*want {
		t.Errorf("%s: %s got %v a second, not %v: %v", what, c.name, got, want, c.passed)
	}
}

// Many tenants with few requests leave the rest of the limit to a tenant with many requests, although each of them may
// at any time request more than in the last window.
func TestShareAmongSmall(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{40, 80} { // with the others, 90 and 130
		virtually(t, fmt.Sprint(rate), func(t *testing.T) {
			big := &caller{name: "big", rate: rate}
			all := []*caller{big}
			for i := range 50 {
				all = append(all, &caller{name: fmt.Sprint("small", i), rate: 1, phase: float64(i) / 50})
			}
			newFleet(t, 1, "100/second").serve(t, all, 12*time.Second, nil)
			near(t, "next to small tenants", big, 6, 12, min(rate, 50))
			for _, c := range all[1:] {
				near(t, "small", c, 6, 12, 1)
			}
		})
	}
}

// The unused allocation of a tenant is lent to the others. When the tenant needs it again, it gets it back within about
// a second.
func TestShareIsLent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		comes := &caller{name: "comes", tier: "pro", rate: 3000, from: 4 * time.Second, to: 8 * time.Second}
		little := &caller{name: "little", rate: 50}
		floods := &caller{name: "floods", rate: 3000}
		too := &caller{name: "too", rate: 3000, phase: 0.5}
		total := newFleet(t, 1, "1000/second").serve(t, []*caller{comes, little, floods, too}, 13*time.Second, nil)
		for _, from := range []int{2, 11} {
			near(t, "while one tenant is idle", floods, from, from+2, 475)
			near(t, "while one tenant is idle", too, from, from+2, 475)
			near(t, "while one tenant is idle", little, from, from+2, 50)
		}
		if total[8] < 750 {
			t.Errorf("in the second after one tenant has left, %v passed: %v", total[8], total)
		}
		near(t, "while all tenants are active", comes, 5, 8, 950*3/5)
		near(t, "while all tenants are active", floods, 5, 8, 950/5)
		near(t, "while all tenants are active", too, 5, 8, 950/5)
		near(t, "while all tenants are active", little, 5, 8, 50)
	})
}

// With any order of requests in lists, and with clocks of processes that are wrong or step, nothing passes above the
// limit, and allocations have settled two seconds after the start and after a step.
func TestShareSettles(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	for name, test := range map[string]struct {
		list  string // requests come in lists of that order
		every time.Duration
		off   []time.Duration // by how much the clock of each process is ahead
		steps []time.Duration // of these clocks, after four seconds
	}{
		"lists of a moment":           {list: "any", every: 5 * time.Millisecond},
		"lists, the flood first":      {list: "flood first", every: 50 * time.Millisecond},
		"lists, the flood last":       {list: "flood last", every: 50 * time.Millisecond},
		"long lists":                  {list: "any", every: 200 * time.Millisecond},
		"long lists, the flood first": {list: "flood first", every: 200 * time.Millisecond},
		"long lists, the flood last":  {list: "flood last", every: 200 * time.Millisecond},
		"an hour ahead":               {steps: []time.Duration{time.Hour}},
		"an hour back":                {steps: []time.Duration{-time.Hour}},
		"a little back":               {steps: []time.Duration{-300 * time.Millisecond}},
		"two seconds back":            {steps: []time.Duration{-2 * time.Second}},
		"to before 1970":              {steps: []time.Duration{-century}},
		"the time of an old log":      {off: []time.Duration{-10 * 24 * time.Hour}},
		"one of two ahead":            {off: make([]time.Duration, 2), steps: []time.Duration{time.Hour, 0}},
		"one of two back":             {off: make([]time.Duration, 2), steps: []time.Duration{0, -time.Hour}},
		"two that are an hour apart":  {off: []time.Duration{0, time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed.Of(t), 0))
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, max(1, len(test.off)), "200/second")
				f.list, f.tick, f.random = test.list, cmp.Or(test.every, 5*time.Millisecond), random
				copy(f.off, test.off)
				crowd := []*caller{{name: "flood", rate: 2000}, {name: "a", rate: 20}, {name: "b", tier: "pro", rate: 110}}
				total := f.serve(t, crowd, 9*time.Second, func(at time.Duration) {
					for i, step := range test.steps {
						if at == 4*time.Second {
							f.off[i] += step
						}
					}
				})
				checkTotal(t, total, 200)
				checkShares(t, "before", crowd, 200, 2, 4)
				checkShares(t, "after", crowd, 200, 6, 9)
			})
		})
	}
}

// While the shared store is unavailable, each instance divides its local allowance among its tenants. When the store is
// available again, the instances divide the whole limit.
func TestShareUnavailable(t *testing.T) {
	t.Parallel()
	for n, all := range map[int][]float64{2: {19, 193}, 4: {7, 193}} {
		for _, steady := range all {
			virtually(t, fmt.Sprintf("%d instances, %v a second", n, steady), func(t *testing.T) {
				const rate, settled, seconds = 200, 2, 5
				f := newFleet(t, n, "200/second", "local")
				crowd := []*caller{
					{name: "flood", rate: 593}, {name: "steady", rate: steady, phase: 0.5},
					{name: "pro", tier: "pro", rate: 3 * steady, phase: 0.3},
				}
				for _, err := range []error{nil, errors.New("connection refused"), nil} {
					f.store.set(err, false)
					total := f.serve(t, crowd, seconds*time.Second, nil)
					for s, passed := range total {
						if s >= settled && (passed < 0.97*rate || passed > 1.01*rate) {
							t.Errorf("%v: in second %d %v passed: %v", err, s, passed, total)
						}
					}
					checkShares(t, fmt.Sprint(err), crowd, rate, settled, seconds)
					if got := crowd[0].got(settled, seconds); got < 0.95*(rate-4*steady)-1 {
						t.Errorf("%v: the flood got %v a second: %v", err, got, crowd[0].passed)
					}
				}
			})
		}
	}
}

// In an outage, a tenant's allocation of a small limit is one request in many seconds, and these requests pass.
func TestShareAwayOfLittle(t *testing.T) {
	virtual(t, func(t *testing.T) {
		const tenants, seconds = 12, 60
		f := newFleet(t, 4, "10/second", "local")
		f.store.set(errors.New("connection refused"), false)
		var crowd []*caller
		for i := range tenants {
			crowd = append(crowd, &caller{name: fmt.Sprint(i), rate: 4.1, phase: float64(i) / tenants})
		}
		if got := mean(f.serve(t, crowd, seconds*time.Second, nil)[10:]); got < 9 || got > 10.5 {
			t.Errorf("%v a second passed of 10", got)
		}
		for _, c := range crowd {
			if got, part := c.got(10, seconds), 10./tenants; got < 0.8*part {
				t.Errorf("%s got %.3f a second, and its allocation is %.3f", c.name, got, part)
			}
		}
	})
}

// Explain does not change the state of a share, even after the wall clock was set: active tenants stay active.
func TestExplainLeavesShares(t *testing.T) {
	t.Parallel()
	e := NewEngine(memory.New(), compile(t, sharedBy("200/second", "")))
	e.shares.wall -= time.Hour.Microseconds() // as if the wall clock had been set ahead by an hour since
	for _, name := range []string{"a", "b", "c"} {
		pass(t, e, tenantOf(name, ""))
	}
	r := &e.current().rules[0]
	active := func() int64 {
		now := e.shares.time(time.Time{})
		return e.shares.Of(r.name+"/", r.own.limits[0].plan, now).Part("", 0, now).Weights
	}
	before := active()
	if e.Explain(t.Context(), tenantOf("a", "")); before != 3 || active() != 3 {
		t.Errorf("%d tenants are active, and %d after Explain", before, active())
	}
}

// The rate in an explanation is the rate that a tenant gets while demand is above the limit.
func TestSharePresent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFleet(t, 1, "100/second")
		many := []*caller{{name: "a", rate: 300}, {name: "b", tier: "pro", rate: 300}}
		f.serve(t, many, 5*time.Second, nil)
		for _, c := range many {
			var weight, of int
			var rate float64
			got := f.engines[0].Explain(t.Context(), tenantOf(c.name, c.tier)).Rules[0].Share
			if _, err := fmt.Sscanf(got, "weight %d, of %d in all active tenants: demand is above 100/second, so %f/second at present", &weight, &of, &rate); err != nil {
				t.Fatalf("%s: %q: %v", c.name, got, err)
			}
			if had := c.got(3, 5); of != 4 || rate < 0.9*had || rate > 1.1*had {
				t.Errorf("%s: %q, and it has got %v a second", c.name, got, had)
			}
		}
	})
}

// The remaining units of a tenant pass at once, and a wait is long enough, if no other tenant sends requests meanwhile.
func TestShareToldIsTrue(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	// The value is the length of an epoch, in quarters of a second.
	for of, slow := range map[string]int64{"100/second": 1, "100/second burst 10": 1, "60/minute": 32} {
		synctest.Test(t, func(t *testing.T) {
			e := newFleet(t, 1, of).engines[0]
			promised, waited := 0, 0
			for i := range 20_000 {
				req := tenantOf([]string{"a", "b", "c", "d"}[r.IntN(4)], "pro")
				switch d := e.Decide(t.Context(), req); {
				case r.IntN(100) > 0:
				case d.Allowed:
					for n := range d.Results[0].Remaining {
						if promised++; !e.Decide(t.Context(), req).Allowed {
							t.Fatalf("%s: of %d that remain, %d passed: %+v", of, d.Results[0].Remaining, n, d.Results[0])
						}
					}
				// The wait ends before the limit is divided again.
				case (time.Now().UnixMicro()+d.RetryAfter.Microseconds())%(slow*250_000) > d.RetryAfter.Microseconds():
					waited++
					time.Sleep(d.RetryAfter)
					if again := e.Decide(t.Context(), req); !again.Allowed {
						t.Fatalf("%s: after %v: %+v", of, d.RetryAfter, again)
					}
				}
				time.Sleep(time.Duration(r.Int64N([]int64{5_000, 80_000}[i/500%2]*slow)) * time.Microsecond)
			}
			if promised < 20 || waited < 20 {
				t.Errorf("%s: %d requests passed that had to, and %d after a wait", of, promised, waited)
			}
		})
	}
}

// A shadow of a share counts the same whether or not a rule with in_flight looks for a permit first.
func TestShadowShareBesidePlaces(t *testing.T) {
	t.Parallel()
	const share = "rules: [{name: all, shadow: true, share: {of: 32/second, by: [header:X-User]}}"
	synctest.Test(t, func(t *testing.T) {
		allowed := map[string]int{}
		for _, more := range []string{"]", ", {name: flight, in_flight: 100}]"} {
			e := engine(t, share+more)
			for range 200 {
				if d := e.Decide(t.Context(), get("/", "X-User: a")); d.Results[0].Allowed {
					allowed[more]++
				}
			}
		}
		if alone, beside := allowed["]"], allowed[", {name: flight, in_flight: 100}]"]; alone != beside || alone > 40 {
			t.Errorf("the shadow allows %d, and %d with in_flight", alone, beside)
		}
	})
}
