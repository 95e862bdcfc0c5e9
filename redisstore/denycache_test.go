package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// A refund by the same process takes effect at once. A reset by another process takes effect after a second.
func TestRefusedAndGivenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	now := int64(1_700_000_000_000_000)
	for _, a := range sluice.Algorithms() {
		store, other := timed(t, server), timed(t, server)
		limit := "3/day"
		if a <= sluice.GCRA {
			limit += " burst 3"
		}
		p := plan(t, a, limit)
		fits := func(s *redisstore.TimedStore, cost int64, after time.Duration) bool {
			t.Helper()
			return plantest.OneAt(t, s, now+after.Microseconds(), a.String(), p, cost).Fits
		}
		if !fits(store, 3, 0) || fits(store, 1, 0) || fits(store, 1, 1) {
			t.Fatalf("%v: want exactly 3 units to fit", a)
		}
		if spared := store.Spared; spared != 1 {
			t.Errorf("%v: %d calls were spared", a, spared)
		}
		fits(store, -1, 2)
		if !fits(store, 1, 3) || fits(store, 1, 4) {
			t.Errorf("%v: want exactly one unit to fit after a refund of one", a)
		}
		fits(other, sluice.All, 5)
		if fits(store, 1, time.Second) {
			t.Errorf("%v: the denial was not remembered for a second", a)
		}
		if !fits(store, 1, time.Second+5*time.Microsecond) {
			t.Errorf("%v: the denial was remembered for more than a second", a)
		}
	}
}

// A client that keeps trying costs the server about one call a second, whatever it requests: one unit, several, or more
// than ever fit. Its wait never grows, and limits that do not deny are not charged.
func TestRefusedCallsASecond(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).URL())
	all := plan(t, sluice.FixedWindow, "1000000/10d")
	for _, limit := range []string{
		"10/10d", "10/10d as fixed_window", "10/10d as sliding_window_log", "2000/10d as sliding_window_log", "10/10d as sliding_window_log_exact",
	} {
		for _, cost := range []int64{1, 2, 10, 5000} {
			p, key := plantest.Plan(t, limit), fmt.Sprint(limit, cost)
			for _, n := range []int64{1, 1, 1, p.Capacity - 3} {
				plantest.One(t, store, key, p, n)
			}
			asked, start, wait := int64(0), time.Now(), sluice.Never
			var first sluice.Receipt
			for i := range 500 {
				r := takeAll(t, store, sluice.Charge{Key: key, Plan: p, Cost: cost}, sluice.Charge{Key: key + "/all", Plan: all, Cost: 1})
				d := p.Decide(cost, r[0])
				if d.Allowed || d.Origin.Degraded() || d.RetryAfter > wait || !r[1].Fits || r[1].Used != 0 {
					t.Fatalf("%s, take %d: %+v after a wait of %v", key, i, r, wait)
				}
				if wait = d.RetryAfter; r[0].Origin == sluice.ByStore {
					asked++
				}
				if i == 0 {
					first = r[0]
				}
				if r[0].Now, r[0].Origin = first.Now, first.Origin; p.Kernel.Log() && r[0] != first {
					t.Fatalf("%s, take %d: %+v, the first was %+v", key, i, r[0], first)
				}
			}
			if most := 2 + int64(time.Since(start)/time.Second); asked > most {
				t.Errorf("%s: %d calls for 500 denials, want at most %d", key, asked, most)
			}
		}
	}
}

// A receipt reports whether the server was called. A Take without a wait does not call it.
func TestRefusedOrigin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "1/10d")
	ask := func(wait time.Duration, key string) (sluice.Receipt, error) {
		var r [1]sluice.Receipt
		err := store.TakeWithin(t.Context(), wait, []sluice.Charge{{Key: key, Plan: p, Cost: 1}}, r[:])
		return r[0], err
	}
	for i, want := range []sluice.Origin{sluice.ByStore, sluice.ByStore, sluice.ByDenyCache} {
		if r, err := ask(patient, "k"); err != nil || r.Origin != want || r.Fits != (i == 0) {
			t.Errorf("take %d: %+v, %v, want it decided by %v", i, r, err, want)
		}
	}
	calls := commandCalls("evalsha", server)
	if r, err := ask(0, "k"); err != nil || r.Origin != sluice.ByDenyCache || r.Fits {
		t.Errorf("without a wait: %+v, %v", r, err)
	}
	if _, err := ask(0, "other"); !notCharged(err) || commandCalls("evalsha", server) != calls {
		t.Errorf("without a wait, with an unknown key: %v", err)
	}
	server.Freeze()
	defer server.Thaw()
	if _, err := ask(10*time.Millisecond, "other"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a frozen server: %v", err)
	}
}
