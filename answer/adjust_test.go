package answer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// Adjust leaves a limiter in the same state as a policy leaves a rule that is settled by the outcome.
func TestAdjust(t *testing.T) {
	t.Parallel()
	for _, algorithm := range sluice.Algorithms() {
		if algorithm == sluice.LeakyBucket {
			continue
		}
		p, err := policyfile.Parse("p.yaml", []byte(fmt.Sprintf("version: 1\nrules: [{name: api, limits: [4/second, 9/minute, 4000/day], algorithm: %v, "+
			"cost: {response_header: X-Cost, estimate: 2, max: 9}}]", algorithm)))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			engine := policy.NewEngine(memory.New(), p)
			var limits []sluice.Limit
			for _, l := range []sluice.Limit{{Count: 4, Period: time.Second}, {Count: 9, Period: time.Minute}, {Count: 4000, Period: 24 * time.Hour}} {
				l.Algorithm = algorithm
				limits = append(limits, l)
			}
			limiter, err := sluice.NewLimiter(memory.New(), "api", limits...)
			if err != nil {
				t.Fatal(err)
			}
			type request struct {
				own, ruled policy.Decision
				at         time.Time
			}
			var held []request
			const seed = 5
			random := rand.New(rand.NewPCG(seed, 0))
			adjusted := 0
			for step := range 3000 {
				if len(held) > 0 && random.IntN(2) == 0 {
					r, cost := held[0], random.Int64N(10)
					held = held[1:]
					adjusted++
					ended, cancel := context.WithCancel(t.Context())
					cancel()
					Adjust(ended, limiter, "k", &r.own, r.at, cost)
					engine.Settle(ended, r.ruled, policy.Outcome{Cost: cmp.Or(cost, -1)})
				} else {
					r := request{at: time.Now()}
					Take(t.Context(), limiter, "api", "k", 2, &r.own)
					r.ruled = engine.Decide(t.Context(), &policy.Request{})
					if got, want := encoded(&r.own), encoded(&r.ruled); got != want {
						t.Fatalf("%v, seed %d, step %d: %s\nwant %s", algorithm, seed, step, got, want)
					}
					if r.own.Allowed {
						held = append(held, r)
					}
				}
				time.Sleep(time.Duration(random.ExpFloat64() * float64([]time.Duration{0, time.Millisecond, time.Second, time.Minute}[random.IntN(4)])))
			}
			if adjusted < 300 {
				t.Errorf("premise: %v adjusted %d requests", algorithm, adjusted)
			}
		})
	}
}

// Adjust does not change a queue, or requests that were allowed without the store.
func TestAdjustNothing(t *testing.T) {
	t.Parallel()
	queue := sluice.Limit{Count: 1, Period: time.Hour, Burst: 5, Algorithm: sluice.LeakyBucket}
	limiter, err := sluice.NewLimiter(memory.New(), "a", queue, sluice.Limit{Count: 9, Period: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var d policy.Decision
	at := time.Now()
	Take(t.Context(), limiter, "a", "k", 2, &d)
	Adjust(t.Context(), limiter, "k", &d, at, 5)
	each := make([]sluice.Decision, 2)
	if _, err := limiter.TakeEach(t.Context(), "k", 1, each); err != nil || each[0].Remaining != 2 || each[1].Remaining != 3 {
		t.Errorf("%d turns and %d units remain, want 2 and 3: %v", each[0].Remaining, each[1].Remaining, err)
	}
	for _, d := range []policy.Decision{
		{Allowed: true, Err: errors.New("unavailable"), Results: d.Results},
		{Allowed: true, Results: []policy.Result{{Plan: limiter.Plans()[1], Cost: 2, Decision: sluice.Decision{Origin: sluice.ByOnError}}}},
	} {
		Adjust(t.Context(), limiter, "k", &d, at, 5)
	}
	if d, err := limiter.Peek(t.Context(), "k"); err != nil || d.Remaining != 2 {
		t.Errorf("%d remain: %v", d.Remaining, err)
	}
}

// encoded returns the answer to a decision as text.
func encoded(d *policy.Decision) string {
	var a Answer
	h := http.Header{}
	new(Encoder).Encode(&a, h, d, Client{})
	return written(&a, h)
}
