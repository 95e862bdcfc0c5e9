package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// budgetRun is the traffic of clients that wait for each response, through three engines over one store.
type budgetRun struct {
	*testing.T
	engines  []*Engine
	began    time.Time
	rate     int64 // tokens a minute
	capacity int64

	mu       sync.Mutex
	spent    int64 // by finished requests
	reserved int64 // by requests under way
	admitted int64
}

// drained returns the number of tokens that have drained so far, rounded up.
func (b *budgetRun) drained() int64 {
	return int64(time.Since(b.began))*b.rate/int64(time.Minute) + 1
}

// client sends requests until the end, each with a maximum output. The function actual returns the tokens that a
// request costs in the end.
func (b *budgetRun) client(r *rand.Rand, end time.Time, actual func(r *rand.Rand, most int64) int64) {
	for time.Now().Before(end) {
		e, most := b.engines[r.IntN(len(b.engines))], 50+r.Int64N(450)
		req := &Request{Method: http.MethodPost, Path: "/", Body: body(fmt.Sprintf(`{"max_tokens":%d}`, most)), Time: time.Now()}
		b.mu.Lock()
		d := e.Decide(b.Context(), req)
		if !d.Allowed {
			b.mu.Unlock()
			time.Sleep(min(max(d.RetryAfter, time.Millisecond), time.Minute))
			continue
		}
		reserved := d.Results[0].Cost
		b.reserved += reserved
		b.admitted++
		// The spent and the reserved tokens fit into the limit together, whatever earlier requests have cost.
		if all := b.spent + b.reserved; all > b.capacity+b.drained() {
			b.Errorf("after %v: %d tokens are spent and %d reserved, want at most %d together", time.Since(b.began), b.spent, b.reserved, b.capacity+b.drained())
		}
		b.mu.Unlock()
		time.Sleep(500*time.Millisecond + time.Duration(r.Int64N(int64(10*time.Second))))
		cost := actual(r, most)
		b.mu.Lock()
		e.Settle(b.Context(), d, Outcome{Status: 200, Numbers: map[string]int64{"usage.prompt_tokens": 1, "usage.completion_tokens": cost - 1}})
		b.reserved -= reserved
		b.spent += cost
		b.mu.Unlock()
	}
}

// The bound of docs/llm.md: with hard estimates, never more than the limit is spent. With other estimates, the spent
// and the reserved tokens fit into the limit at every admission. So only requests under way can exceed the limit, by
// their cost above their reservations, and in the long run the limit is kept. Other gateways have no such bound:
// litellm (#18730, #34732, #40002) lets concurrent requests pass, 663 where 100 fit; Envoy AI Gateway (#2394),
// agentgateway and APISIX count only afterwards.
func TestBudgetBound(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"token_bucket", "gcra"} {
		for _, one := range []struct {
			name, estimate string
			hard           bool
			actual         func(r *rand.Rand, most int64) int64
		}{
			{"hard", "{bytes: 1}", true, func(r *rand.Rand, most int64) int64 { return 2 + r.Int64N(most) }},
			{"soft", "{bytes: 3, output: 100}", false, func(r *rand.Rand, _ int64) int64 { return 2 + r.Int64N(1500) }},
			{"far too low", "1", false, func(r *rand.Rand, _ int64) int64 { return 2 + r.Int64N(3000) }},
			{"far too high", "5000", true, func(r *rand.Rand, _ int64) int64 { return 2 + r.Int64N(300) }},
		} {
			t.Run(algorithm+"/"+one.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := parse(t, fmt.Sprintf("rules: [{name: a, limit: 6000/minute, algorithm: %s, cost: {tokens: total, estimate: %s}}]", algorithm, one.estimate))
					b := &budgetRun{T: t, began: time.Now(), rate: 6000, capacity: 6000}
					store := memory.New()
					for range 3 {
						b.engines = append(b.engines, NewEngine(store, p))
					}
					const long = 4 * time.Hour
					var clients sync.WaitGroup
					for i := range uint64(20) {
						clients.Go(func() { b.client(rand.New(rand.NewPCG(seed.Of(t), i)), b.began.Add(long), one.actual) })
					}
					clients.Wait()
					for !b.engines[0].Decide(t.Context(), get("/")).Allowed { // until the last debts have drained
						time.Sleep(time.Second)
					}
					most := b.rate*int64(time.Since(b.began))/int64(time.Minute) + b.capacity
					t.Logf("%d requests spent %.4f of the limit", b.admitted, float64(b.spent)/float64(most))
					if one.hard && b.spent > most {
						t.Errorf("%d tokens were spent, %d fit", b.spent, most)
					}
					if float64(b.spent) > 1.02*float64(most) {
						t.Errorf("%d tokens were spent, more than 2 %% above %d", b.spent, most)
					}
					if one.name != "far too high" && float64(b.spent) < 0.98*float64(most) {
						t.Errorf("%d tokens were spent, more than 2 %% below %d", b.spent, most)
					}
					if b.admitted < 500 {
						t.Errorf("%d requests passed", b.admitted)
					}
				})
			})
		}
	}
}

// The cost above a reservation is a debt of the key, under every algorithm. The key is denied until the debt has
// drained, and for no longer than Policy.Debts reports.
func TestBudgetLockout(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms() {
		if a == sluice.LeakyBucket {
			continue
		}
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := NewEngine(memory.New(), parse(t, fmt.Sprintf("rules: [{name: a, limit: 1000/minute, algorithm: %v, cost: {tokens: total, estimate: 100}}]", a)))
				d := e.Decide(t.Context(), get("/"))
				e.Settle(t.Context(), d, Outcome{Status: 200, Numbers: map[string]int64{"usage.prompt_tokens": 1_000_000}})
				began := time.Now()
				for !e.Decide(t.Context(), get("/")).Allowed {
					time.Sleep(time.Second)
				}
				if took, most := time.Since(began), e.Policy().Debts()[0].Lockout; took > most+time.Second {
					t.Errorf("the key is denied for %v, want at most %v", took, most)
				}
			})
		})
	}
}

// A hard estimate covers a request that writes its whole input to a cache.
func TestHardEstimateOfCacheWrites(t *testing.T) {
	t.Parallel()
	const text = `{"model":"claude-x","max_tokens":100}`
	for estimate, input := range map[string]float64{"{bytes: 1}": float64(len(text)) * 3.75, "{bytes: 2}": math.Ceil(float64(len(text))/2) * 3} {
		e := NewEngine(memory.New(), parse(t, "prices: "+somePrices+"}\nrules: [{name: a, limit: 1 USD/day, cost: {usd: prices, estimate: "+estimate+"}}]"))
		d := e.Decide(t.Context(), &Request{Method: http.MethodPost, Path: "/", Body: body(text)})
		if want := int64(math.Ceil(input + 100*15)); !d.Allowed || d.Results[0].Cost != want {
			t.Errorf("%s: %d micro-USD are reserved, want %d", estimate, d.Results[0].Cost, want)
		}
	}
}
