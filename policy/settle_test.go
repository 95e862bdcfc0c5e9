package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/internal/seed"
)

// A request is settled once, even if several copies of its decision are settled at the same time. Only its own units
// are given back, and none of a rule that waits for no outcome.
func TestSettleOnce(t *testing.T) {
	t.Parallel()
	e := engine(t, `
rules:
  - {name: failures, limit: 10/day, count: {status: [401]}}
  - {name: all, limit: 10/day}
  - {name: bytes, limit: 1000/day, cost: {response_bytes: 10, estimate: 5}}`)
	held, d := pass(t, e, get("/")), pass(t, e, get("/"))
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			mine := d
			e.Settle(t.Context(), mine, Outcome{Status: 200, Bytes: -1 + int64(i%2)*101})
		})
	}
	wg.Wait()
	e.Settle(t.Context(), d, Outcome{Status: 200, Bytes: 5000})
	e.Refund(t.Context(), d)
	if f, a, b := remains(t, e, "failures"), remains(t, e, "all"), remains(t, e, "bytes"); f != 9 || a != 8 || b != 1000-5-10 {
		t.Errorf("%d failures, %d of all, %d of bytes are left, want 9, 8 and 985", f, a, b)
	}
	e.Settle(t.Context(), held, Outcome{Status: 401, Bytes: 0})
	if f, b := remains(t, e, "failures"), remains(t, e, "bytes"); f != 9 || b != 990 {
		t.Errorf("%d failures, %d of bytes are left, want 9 and 990", f, b)
	}
}

// After decisions and settlements in any order, the count is the sum of the final costs of all requests.
func TestSettleSums(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact"} {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, "rules: [{name: a, limit: 2000/day, algorithm: "+algorithm+", shadow: true, count: {status: [401]}, cost: {response_header: X-Cost, estimate: 3, max: 100}}]")
			var held []Decision
			used := int64(0)
			for i := range 3000 {
				if len(held) == 0 || random.IntN(2) == 0 {
					fits := used+3 <= 2000
					d := e.Decide(t.Context(), get("/"))
					if d.Results[0].Allowed != fits || d.Unsettled() != fits {
						t.Fatalf("seed %d, %s, %d: with %d used: %s, unsettled %v", seed, algorithm, i, used, summary(d), d.Unsettled())
					}
					if fits {
						used, held = used+3, append(held, d)
					}
					continue
				}
				n := random.IntN(len(held))
				d, cost := held[n], int64(random.IntN(12))
				held[n] = held[len(held)-1]
				held = held[:len(held)-1]
				o := header([]int{200, 401}[random.IntN(2)], "X-Cost", fmt.Sprint(cost))
				if o.Status != 401 {
					cost = 0
				}
				e.Settle(t.Context(), d, o)
				used += cost - 3
				if got := remains(t, e, "a"); got != max(0, 2000-used) {
					t.Fatalf("seed %d, %s, %d: %d units are left, and %d of 2000 are used", seed, algorithm, i, got, used)
				}
			}
		})
	}
}

// A Decision can be reused while a copy of it waits for its outcome.
func TestSettleAfterReuse(t *testing.T) {
	t.Parallel()
	e := engine(t, "rules: [{name: a, key: [header:K], limit: 5/day, count: {status: [401]}}]")
	var d Decision
	e.DecideInto(t.Context(), get("/", "K: a"), &d)
	first := d
	for i := range 20 {
		e.DecideInto(t.Context(), get("/", fmt.Sprintf("K: %d", i)), &d)
	}
	e.Settle(t.Context(), first, status(200))
	e.DecideInto(t.Context(), get("/", "K: a"), &d)
	if summary(d) != "allowed a:4" {
		t.Errorf("%s, want a:4", summary(d))
	}
}

// Settle does not end with the client's context, and its call of the store has a deadline.
func TestSettleIsBounded(t *testing.T) {
	t.Parallel()
	e, stored := recorded(t, "rules: [{name: a, limit: 5/day, count: {status: [401]}}]")
	d := pass(t, e, get("/"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	stored.unbounded = false
	e.Settle(ended, d, status(200))
	if unbounded := stored.unbounded; unbounded || remains(t, e, "a") != 5 {
		t.Errorf("unbounded %v, %d are left", unbounded, remains(t, e, "a"))
	}
}

// Of concurrent guesses, wrong and right, five wrong guesses pass in any order, and right guesses do not count.
func TestParallelGuesses(t *testing.T) {
	t.Parallel()
	for _, algorithm := range exactAlgorithms {
		e := engine(t, "rules: [{name: login, limit: 5/day, algorithm: "+algorithm+", count: {status: [401]}}]")
		var wrong atomic.Int64
		guess := func(status int) (allowed bool) {
			d := e.Decide(t.Context(), get("/login"))
			if d.Allowed && status == 401 {
				wrong.Add(1)
			}
			e.Settle(t.Context(), d, Outcome{Status: status})
			return d.Allowed
		}
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 20 {
					guess(200)
				}
			})
		}
		if wg.Wait(); remains(t, e, "login") != 5 {
			t.Fatalf("%s: %d are left after right guesses only", algorithm, remains(t, e, "login"))
		}
		for i := range 64 {
			wg.Go(func() {
				for wrong.Load() < 5 && !guess([]int{200, 401}[i%2]) {
				}
			})
		}
		wg.Wait()
		if n := wrong.Load(); n != 5 || remains(t, e, "login") != 0 {
			t.Errorf("%s: %d wrong guesses passed, %d are left", algorithm, n, remains(t, e, "login"))
		}
	}
}
