package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/redisstore"
)

// A key does not expire before its state equals the empty one, and not much later unless more than half of a window or
// log is used. This holds after takes, refunds and debts under any of the limits that share the key.
func TestExpiry(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms() {
		limits := []string{"700/hour", "7/minute", "3000/day", "50000/hour"}
		if a <= sluice.GCRA {
			limits = append(limits, "60/hour burst 1", "1/day burst 1000", "100/hour burst 5,100/hour burst 64,100/hour burst 5000", "7/10000d burst 10",
				"999983/hour burst 10,999983/hour burst 63,999983/hour burst 1000000") // in ticks of a microsecond and of a millisecond
		}
		if a == sluice.FixedWindow {
			limits = append(limits, "3000/month", "7/month from 31")
		}
		if a >= sluice.SlidingWindowLog {
			limits = append(limits, "1000/500ms", "6000/500ms") // long logs; their units expire during the test
		}
		for _, group := range limits {
			t.Run(a.String()+" "+group, func(t *testing.T) {
				t.Parallel()
				server, r := redistest.Shared(t), rand.New(rand.NewPCG(seed.Of(t), uint64(a)))
				var plans []*sluice.Plan
				for limit := range strings.SplitSeq(group, ",") {
					p := plan(t, a, limit)
					if owing, err := p.WithMost(p.Capacity + p.Capacity/2); err == nil && group == limit {
						p = owing
					}
					plans = append(plans, p)
				}
				testExpiry(t, r, server, open(t, server.URL()), plans)
			})
		}
	}
}

func testExpiry(t *testing.T, r *rand.Rand, server *redistest.Server, store sluice.Store, plans []*sluice.Plan) {
	var name string
	for range 60 {
		if plans[0].Limit.Period < time.Second && r.IntN(10) == 0 {
			time.Sleep(30 * time.Millisecond)
		}
		p := plans[r.IntN(len(plans))]
		cost := 1 + r.Int64N(max(1, p.Capacity/20))
		if r.IntN(5) == 0 {
			cost = -cost
		}
		owe := cost > 0 && r.IntN(3) == 0
		receipt := takeAll(t, store, sluice.Charge{Key: "k", Plan: p, Cost: cost, Owe: owe})[0]
		if name == "" {
			name = server.Do("KEYS", "*")
		}
		checkExpiry(t, server, name, p, cost, receipt, plans)
	}
}

// checkExpiry checks the expiry of the key with the given name, which plans share. r is the receipt of its last charge,
// of cost under p.
func checkExpiry(t *testing.T, server *redistest.Server, name string, p *sluice.Plan, cost int64, r sluice.Receipt, plans []*sluice.Plan) {
	t.Helper()
	expires := number(t, server, "PEXPIRETIME", name) * 1000 // microseconds
	reset := p.Decide(cost, r).ResetAfter
	if reset == 0 {
		return
	}
	empty := r.Now + reset.Microseconds()
	if expires == -2000 && server.Now().UnixMicro() > empty {
		return // too late, on a busy machine
	}
	// An expiry is rounded up by at most an eighth of the period, with the exceptions below.
	slack := (p.Limit.Period / 8).Microseconds() + 1000
	if p.Kernel == kernel.Window {
		slack = 1000
		stays := (p.Limit.Period / 8).Microseconds()
		if p.Limit.Algorithm == sluice.SlidingWindowCounter {
			stays += p.Limit.Period.Microseconds()
		}
		switch {
		case 2*r.Used > p.Capacity:
			empty += stays
		case 2*r.Prev > p.Capacity: // the expiry may be that of the previous window
			slack += stays
		}
	}
	if p.Kernel.Log() {
		slack = p.Span*p.Tick/8 + p.Span*p.Tick + 1000
		if 2*r.Used > p.Capacity {
			empty += p.Span * p.Tick
			slack -= p.Span * p.Tick
		}
	}
	for _, p := range plans {
		if p.Kernel == kernel.Meter {
			slack = max(slack, p.Lifetime()/8+1000)
		}
	}
	if expires < empty || expires > empty+slack {
		t.Fatalf("%v, cost %d, %+v: empties at %d and expires at %d, %v later", p.Limit, cost, r, empty, expires,
			time.Duration(expires-empty)*time.Microsecond)
	}
}

// If several requests of a call share a key, not each of them writes it, and it expires on time.
func TestSharedKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := timed(t, server)
	r := rand.New(rand.NewPCG(seed.Of(t), 6))
	for _, a := range sluice.Algorithms() {
		for _, limit := range []string{"700/hour", "4/500ms", "5000/day"} {
			server.Do("FLUSHALL")
			p, user := plan(t, a, limit), plan(t, sluice.FixedWindow, "1000000/day")
			for round := range 15 {
				if p.Limit.Period < time.Second {
					time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
				}
				before := commandCalls("set", server) + commandCalls("incrby", server) + commandCalls("append", server)
				var charges [][]sluice.Charge
				var receipts [][]sluice.Receipt
				for i := range 4 {
					all := sluice.Charge{Key: "all", Plan: p, Cost: 1 + int64(i)*r.Int64N(2)}
					charges = append(charges, []sluice.Charge{{Key: strconv.Itoa(i), Plan: user, Cost: 1}, all})
					receipts = append(receipts, make([]sluice.Receipt, 2))
				}
				if err := store.TakeAll(t.Context(), charges, receipts); err != nil {
					t.Fatal(err)
				}
				if n := commandCalls("set", server) + commandCalls("incrby", server) + commandCalls("append", server) - before; n > 6 || round == 0 && n < 2 {
					t.Fatalf("%v: %d writes of 4 keys and a shared one", p.Limit, n)
				}
				checkExpiry(t, server, server.Do("KEYS", "*all"), p, charges[3][1].Cost, receipts[3][1], nil)
			}
		}
	}
}

// A key stays no longer than Kept reports, plus the rounding of its expiry: after its first unit, and after all its
// units.
func TestKept(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := open(t, server.URL())
	for _, p := range plansOf(t, "60/hour", "60/10d", "5000/day") {
		first, last := redisstore.Kept(p)
		key := fmt.Sprint(p.Limit.Algorithm, p.Limit)
		for _, step := range []struct {
			cost int64
			kept time.Duration
		}{{1, first}, {p.Capacity - 1, last}} {
			before := server.Now()
			r := takeAll(t, store, sluice.Charge{Key: key, Plan: p, Cost: step.cost})[0]
			if after := server.Now(); r.Now < before.UnixMicro() || r.Now > after.UnixMicro() {
				t.Errorf("taken at %d, between %d and %d by the server's clock", r.Now, before.UnixMicro(), after.UnixMicro())
			}
			if stays := number(t, server, "PEXPIRETIME", redisstore.Name(store, key, p)) - r.Now/1000; stays > step.kept.Milliseconds()+p.Lifetime()/8000+1 {
				t.Errorf("%v %v, %d units: the key stays for %d ms, want %v at most", p.Limit.Algorithm, p.Limit, r.Used, stays, step.kept)
			}
		}
	}
}
