package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

// visitor makes up requests that give nothing back: layers of a few users, hosts and one
// for all, some of them shadows, peeks, or of a cost of their own.
type visitor struct {
	*rand.Rand
	users, hosts, all []*sluice.Plan
}

func newVisitor(t *testing.T) *visitor {
	v := &visitor{Rand: rand.New(rand.NewPCG(5, 6))}
	for _, a := range sluice.Algorithms() {
		v.users = append(v.users, plan(t, a, "7/second"), plan(t, a, "20/10s"))
		v.hosts = append(v.hosts, plan(t, a, "30/second"))
		v.all = append(v.all, plan(t, a, "300/2s"))
	}
	return v
}

func (v *visitor) request() []sluice.Charge {
	one := func(kind string, n int, plans []*sluice.Plan) sluice.Charge {
		n = v.IntN(n)
		c := sluice.Charge{Key: fmt.Sprint(kind, n), Plan: plans[n%len(plans)], Cost: 1, Shadow: v.IntN(10) == 0}
		switch v.IntN(10) {
		case 0:
			c.Cost = v.Int64N(5)
		case 1:
			c.Cost = v.Int64N(c.Plan.Capacity + 3)
		}
		return c
	}
	charges := []sluice.Charge{one("user", 12, v.users)}
	if v.IntN(2) == 0 {
		charges = append(charges, one("host", 6, v.hosts), one("all", 6, v.all))
	}
	return charges
}

// Processes that remember what was refused decide as one that counts all by itself, as
// long as nothing is given back.
func TestRefusedDifferential(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var stores []*redisstore.TimedStore
	for range 3 {
		stores = append(stores, redisstore.Timed(open(t, "unix://"+server.Socket)))
	}
	model, visitor := memory.New(), newVisitor(t)
	now := int64(1_700_000_000_000_000)
	takes, refused := steps(t)/5, 0
	for n := range takes {
		now += visitor.Int64N(10_000)
		charges := visitor.request()
		got, want := make([]sluice.Receipt, len(charges)), make([]sluice.Receipt, len(charges))
		store := stores[visitor.IntN(len(stores))]
		if err := store.TakeLooseAt(t.Context(), now, charges, got); err != nil {
			t.Fatal(err)
		}
		if err := model.TakeAt(t.Context(), now, charges, want); err != nil {
			t.Fatal(err)
		}
		admitted := sluice.Admitted(charges, want)
		if !admitted {
			refused++
		}
		for i, c := range charges {
			// What fits, by what is remembered, may have been used up by others.
			if wrong := !got[i].Fits && want[i].Fits; wrong || got[i].Now != now || sluice.Admitted(charges, got) != admitted {
				t.Fatalf("take %d, charge %d %+v of %v: %+v, want %+v", n, i, c, c.Plan.Limit, got[i], want[i])
			}
		}
	}
	spared := 0
	for _, s := range stores {
		spared += s.Spared
	}
	if refused < takes/5 || refused > takes*4/5 || spared < refused/3 {
		t.Errorf("of %d takes %d were refused, %d of them from memory: this tells little", takes, refused, spared)
	}
}

// What is given back in the process is there at once, and what another gives back after a
// second.
func TestRefusedAndGivenBack(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_700_000_000_000_000)
	for _, a := range sluice.Algorithms() {
		store, other := redisstore.Timed(open(t, "unix://"+server.Socket)), redisstore.Timed(open(t, "unix://"+server.Socket))
		limit := "3/day"
		if a <= sluice.GCRA {
			limit += " burst 3"
		}
		p := plan(t, a, limit)
		fits := func(s *redisstore.TimedStore, cost int64, after time.Duration) bool {
			t.Helper()
			var r [1]sluice.Receipt
			if err := s.TakeAt(t.Context(), now+after.Microseconds(), []sluice.Charge{{Key: a.String(), Plan: p, Cost: cost}}, r[:]); err != nil {
				t.Fatal(err)
			}
			return r[0].Fits
		}
		if !fits(store, 3, 0) || fits(store, 1, 0) || fits(store, 1, 1) {
			t.Fatalf("%v: not 3 units fit", a)
		}
		if spared := store.Spared; spared != 1 {
			t.Errorf("%v: %d calls were spared", a, spared)
		}
		fits(store, -1, 2)
		if !fits(store, 1, 3) || fits(store, 1, 4) {
			t.Errorf("%v: not one unit fits after one was given back", a)
		}
		fits(other, sluice.All, 5)
		if fits(store, 1, time.Second) {
			t.Errorf("%v: it was not remembered for a second", a)
		}
		if !fits(store, 1, time.Second+5*time.Microsecond) {
			t.Errorf("%v: it was remembered for more than a second", a)
		}
	}
}

// One who keeps asking costs the server a call a second.
func TestRefusedCallsASecond(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p, all := plan(t, sluice.TokenBucket, "5/10d"), plan(t, sluice.FixedWindow, "1000000/10d")
	var receipts [2]sluice.Receipt
	calls, start := commandCalls(t, server, "evalsha"), time.Now()
	wait := sluice.Never
	for n := range 30_000 {
		charges := []sluice.Charge{{Key: "k", Plan: p, Cost: 1}, {Key: "all", Plan: all, Cost: 1}}
		if err := store.Take(t.Context(), charges, receipts[:]); err != nil {
			t.Fatal(err)
		}
		d := p.Decide(1, receipts[0])
		if d.Allowed != (n < 5) || d.Origin.Degraded() || !receipts[1].Fits || receipts[1].Used != int64(min(n+1, 5)) {
			t.Fatalf("take %d: %+v", n, receipts)
		}
		if !d.Allowed && d.RetryAfter > wait {
			t.Fatalf("take %d: the wait grew from %v to %v", n, wait, d.RetryAfter)
		}
		wait = d.RetryAfter
	}
	if n, most := commandCalls(t, server, "evalsha")-calls, 6+int64(time.Since(start)/time.Second); n > most {
		t.Errorf("%d calls, want at most %d", n, most)
	}
	if n := used(t, open(t, server.URL()), "all", all); n != 5 {
		t.Errorf("%d units are used of the layer that does not refuse, want 5", n)
	}
}

// Of logs, too, whatever the cost: one unit, several, and more than ever fit.
func TestRefusedLogsByCost(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	for _, a := range []sluice.Algorithm{sluice.SlidingWindowLog, sluice.SlidingWindowLogExact} {
		for _, limit := range []string{"10/10d", "2000/10d"} {
			for _, cost := range []int64{1, 2, 5, 10, 5000} {
				p := plan(t, a, limit)
				key := fmt.Sprint(a, limit, cost)
				for range 3 {
					take(t, store, key, p)
				}
				var full, r [1]sluice.Receipt
				if err := store.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p, Cost: p.Capacity - 3}}, full[:]); err != nil {
					t.Fatal(err)
				}
				calls, start := commandCalls(t, server, "evalsha"), time.Now()
				const asked = 500
				var first sluice.Receipt
				for i := range asked {
					if err := store.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p, Cost: cost}}, r[:]); err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						first = r[0]
					}
					if r[0].Now, r[0].Origin = first.Now, first.Origin; r[0] != first || r[0].Fits || r[0].Used != p.Capacity {
						t.Fatalf("%s, take %d: %+v, the first was %+v", key, i, r[0], first)
					}
				}
				if n, most := commandCalls(t, server, "evalsha")-calls, 1+int64(time.Since(start)/time.Second); n > most {
					t.Errorf("%s: %d calls for %d refusals, want at most %d", key, n, asked, most)
				}
			}
		}
	}
}

// A receipt says whether the server was asked, and without a wait it is not.
func TestRefusedOrigin(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	p := plan(t, sluice.FixedWindow, "1/10d")
	ask := func(wait time.Duration, key string) (sluice.Receipt, error) {
		var r [1]sluice.Receipt
		err := store.TakeWithin(t.Context(), wait, []sluice.Charge{{Key: key, Plan: p, Cost: 1}}, r[:])
		return r[0], err
	}
	for i, want := range []sluice.Origin{sluice.ByStore, sluice.ByStore, sluice.ByDenyCache} {
		if r, err := ask(time.Minute, "k"); err != nil || r.Origin != want || r.Fits != (i == 0) {
			t.Errorf("take %d: %+v, %v, want it decided by %v", i, r, err, want)
		}
	}
	calls := commandCalls(t, server, "evalsha")
	if r, err := ask(0, "k"); err != nil || r.Origin != sluice.ByDenyCache || r.Fits {
		t.Errorf("without a wait: %+v, %v", r, err)
	}
	_, err := ask(0, "other")
	if e, ok := errors.AsType[*redisstore.Error](err); !ok || !e.NotCharged() || commandCalls(t, server, "evalsha") != calls {
		t.Errorf("without a wait, of a key that is not known: %v", err)
	}
	server.Freeze()
	defer server.Thaw()
	if _, err := ask(10*time.Millisecond, "other"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("of a server that hangs: %v", err)
	}
}
