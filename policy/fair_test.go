package policy_test

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// sharedBy is a policy of one limit that tenants share by their headers.
func sharedBy(of string) policy.Document {
	return policy.Document{
		Tiers: policy.Tiers{From: "header:X-Plan"},
		Rules: []policy.Rule{{Name: "api", Share: policy.Share{
			Of: of, By: []string{"header:X-Tenant"}, Weights: map[string]int64{"pro": 3, "big": 10},
		}}},
	}
}

// caller is a tenant who asks at even intervals.
type caller struct {
	name, tier string
	weight     float64
	rate       float64       // requests a second
	burst      int           // of which so many come at once; one, if it is 0
	from, to   time.Duration // to the end, if it is 0
	phase      float64       // of an interval
	only       int           // which engine it asks, from 1 on; each in turn, if it is 0

	next          time.Duration
	asked, passed []float64 // by second
}

func (c *caller) every() time.Duration {
	return time.Duration(float64(max(c.burst, 1)) / c.rate * float64(time.Second))
}

// got returns what has passed from one second to another, a second.
func (c *caller) got(from, to int) float64 { return mean(c.passed[from:to]) }

func mean(all []float64) (sum float64) {
	for _, n := range all {
		sum += n
	}
	return sum / float64(len(all))
}

// fleet is engines that decide in turn over one store, and talk to each other, if there are several.
type fleet []*policy.Engine

func newFleet(t *testing.T, n int, of string) (f fleet) {
	t.Helper()
	p, err := policy.Compile(sharedBy(of))
	if err != nil {
		t.Fatal(err)
	}
	for store := memory.New(); len(f) < n; {
		f = append(f, policy.NewEngine(store, p))
	}
	return f
}

func (f fleet) talk() {
	if len(f) == 1 {
		return
	}
	now := time.Now()
	var said [][]byte
	for _, e := range f {
		said = append(said, e.Demand(now))
	}
	for i, e := range f {
		var others [][]byte
		for j := range f {
			if j != i && said[j] != nil {
				others = append(others, said[j])
			}
		}
		e.HearDemand(now, others)
	}
}

// serve has the callers ask for so long. It returns what has passed in all, by second.
func (f fleet) serve(t *testing.T, callers []*caller, lasts time.Duration) (total []float64) {
	t.Helper()
	start, seconds := time.Now(), int(lasts/time.Second)
	for _, c := range callers {
		c.asked, c.passed = make([]float64, seconds), make([]float64, seconds)
		c.next = c.from + time.Duration(c.phase*float64(c.every()))
	}
	total = make([]float64, seconds)
	until := func(at time.Duration) { time.Sleep(at - time.Since(start)) }
	n, talks := 0, time.Duration(0)
	for {
		c := callers[0]
		for _, o := range callers {
			if o.next < c.next {
				c = o
			}
		}
		if c.next >= lasts {
			return total
		}
		for ; talks <= c.next; talks += 250 * time.Millisecond {
			until(talks)
			f.talk()
		}
		until(c.next)
		second := int(c.next / time.Second)
		for range max(c.burst, 1) {
			n++
			e := f[n%len(f)]
			if c.only > 0 {
				e = f[c.only-1]
			}
			d := e.Decide(t.Context(), &policy.Request{Header: http.Header{"X-Tenant": {c.name}, "X-Plan": {c.tier}}})
			c.asked[second]++
			if d.Allowed {
				c.passed[second]++
				total[second]++
			}
		}
		if c.next += c.every(); c.to > 0 && c.next >= c.to {
			c.next = math.MaxInt64
		}
	}
}

// hundred returns 100 tenants of three weights, of whom each asks for so many times its part of a
// rate, but the first for a hundred times; and their parts.
func hundred(rate, times float64) (all []*caller, parts []float64) {
	weights := []float64{1, 3, 10}
	sum := 0.0
	for i := range 100 {
		c := &caller{name: fmt.Sprintf("t%02d", i), tier: []string{"free", "pro", "big"}[i%3], weight: weights[i%3], phase: float64(i*37%100) / 100}
		all = append(all, c)
		sum += c.weight
	}
	for _, c := range all {
		parts = append(parts, rate*c.weight/sum)
		c.rate = rate * c.weight / sum * times
	}
	all[0].rate = parts[0] * 100
	return all, parts
}

// jain is Jain's index of fairness: 1 if all are the same.
func jain(x []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(x)) * squares)
}

// The figures of fair shares, with engines that decide in turn: 100 tenants of three weights, of whom
// one asks for a hundred times its part.
func TestShareAmongHundred(t *testing.T) {
	for engines, all := range map[int][]float64{1: {1, 1.2, 2, 5}, 2: {2}, 4: {3}} {
		for _, times := range all {
			t.Run(fmt.Sprintf("%d engines, %v times", engines, times), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testShareAmongHundred(t, engines, times) })
			})
		}
	}
}

func testShareAmongHundred(t *testing.T, engines int, times float64) {
	const rate, settled, seconds = 1000, 2, 10
	all, parts := hundred(rate, times)
	total := newFleet(t, engines, "1000/second").serve(t, all, seconds*time.Second)
	sum := 0.0
	for s, n := range total {
		if sum += n; sum > rate*float64(s+1)+rate {
			t.Errorf("%v passed in the first %d seconds, and the limit is %d a second and as much at once", sum, s+1, rate)
		}
	}
	if used := mean(total[settled:]) / rate; used < 0.97 {
		t.Errorf("%.3f of the limit were used: %v", used, total)
	}
	var shares []float64
	for i, c := range all {
		shares = append(shares, c.got(settled, seconds)/c.weight)
		for from := settled; from+2 <= seconds && i > 0; from++ {
			// Parts of a request do not pass, and may be due at the end.
			if got, least := 2*c.got(from, from+2), 0.95*2*parts[i]; got < least-1.2 {
				t.Errorf("%s got %v from %d s to %d s, and its part is %.1f: %v of %v", c.name, got, from, from+2, 2*parts[i], c.passed, c.asked)
			}
		}
		if got := c.got(settled, seconds); i > 0 && got*(seconds-settled) < 0.95*parts[i]*(seconds-settled)-1 {
			t.Errorf("%s got %v a second, and its part is %.2f", c.name, got, parts[i])
		}
	}
	if j := jain(shares); j < 0.98 {
		t.Errorf("Jain's index by weight is %.4f", j)
	}
}

// Whoever is alone has all of the limit.
func TestShareOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &caller{name: "a", rate: 3000}
		total := newFleet(t, 1, "1000/second").serve(t, []*caller{one}, 4*time.Second)
		for s, n := range total {
			least, most := 995.0, 1000.0
			if s == 0 { // the burst without the reserve, and at most all of it
				least, most = 1495, 2000
			}
			if n < least || n > most {
				t.Errorf("in second %d of being alone %v passed, not %v to %v: %v", s, n, least, most, total)
			}
		}
	})
}

// Two tenants: one asks for all that it can get, in each of several ways, and the other for its half.
func TestShareOfTwo(t *testing.T) {
	for name, flood := range map[string]caller{
		"steady":             {rate: 4_000},
		"at once each epoch": {rate: 4_000, burst: 1_000},
		"late in each epoch": {rate: 4_000, burst: 1_000, phase: 0.95},
		"each second":        {rate: 4_000, burst: 4_000},
		"every third second": {rate: 4_000, burst: 14_000},
		"from second 2 on":   {rate: 4_000, from: 2 * time.Second},
	} {
		for _, of := range []string{"1000/second", "1000/second burst 100"} {
			t.Run(name+" of "+of, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					flood.name = "flood"
					steady := &caller{name: "steady", rate: 495, phase: 0.5}
					total := newFleet(t, 1, of).serve(t, []*caller{&flood, steady}, 6*time.Second)
					for s := int((flood.from + 2*time.Second) / time.Second); s < len(total); s++ {
						if steady.passed[s] < 0.95*steady.asked[s] {
							t.Errorf("in second %d, %v of %v passed: %v of %v", s, steady.passed[s], steady.asked[s], steady.passed, total)
						}
					}
				})
			})
		}
	}
}

// An engine divides by what others are asked for, too: by itself, neither of two has too little for its
// tenant.
func TestShareIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []*caller{{name: "a", rate: 700, only: 1}, {name: "b", tier: "pro", rate: 900, only: 2, phase: 0.5}}
		total := newFleet(t, 2, "1000/second").serve(t, all, 8*time.Second)
		for i, want := range []float64{250, 750} {
			if got := all[i].got(3, 8); got < 0.95*want || got > 1.05*want {
				t.Errorf("%s got %v a second, not %v: %v of %v", all[i].name, got, want, all[i].passed, total)
			}
		}
	})
}

// What somebody does not use is lent to the others, and theirs again within two seconds.
func TestShareIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		comes := &caller{name: "comes", tier: "pro", rate: 3000, from: 4 * time.Second, to: 8 * time.Second}
		little := &caller{name: "little", rate: 50}
		floods := &caller{name: "floods", rate: 3000}
		too := &caller{name: "too", rate: 3000, phase: 0.5}
		total := newFleet(t, 1, "1000/second").serve(t, []*caller{comes, little, floods, too}, 13*time.Second)
		near := func(what string, c *caller, from, to int, want float64) {
			if got := c.got(from, to); got < 0.95*want || got > 1.05*want {
				t.Errorf("%s: %s got %v a second, not %v: %v of %v", what, c.name, got, want, c.passed, total)
			}
		}
		for _, from := range []int{2, 11} {
			near("while one is away", floods, from, from+2, 475)
			near("while one is away", too, from, from+2, 475)
			near("while one is away", little, from, from+2, 50)
		}
		if total[8] < 750 {
			t.Errorf("in the second after one has left, %v passed: %v", total[8], total)
		}
		near("while all ask", comes, 5, 8, 950*3/5)
		near("while all ask", floods, 5, 8, 950/5)
		near("while all ask", too, 5, 8, 950/5)
		near("while all ask", little, 5, 8, 50)
	})
}
