// Package fleet simulates processes that share a limit by package lease: its own code, in virtual time. A
// few gateways over one Redis are asked for the same beside it. "make simulation" writes what comes out to
// ../RESULTS-fleet.md, with pictures.
package fleet

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

const (
	trip  = 500 * time.Microsecond // to the shared store and back
	rate  = 10_000                 // units a second
	lasts = 4 * time.Second
)

// server is the shared store: memory behind a network, which counts its calls.
type server struct {
	*memory.Store
	calls atomic.Int64
}

func (s *server) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.calls.Add(1)
	time.Sleep(trip / 2)
	defer time.Sleep(trip / 2)
	return s.Store.Take(ctx, charges, receipts)
}

func (s *server) TakeWithin(ctx context.Context, _ time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.Take(ctx, charges, receipts)
}

func (s *server) TakeEachWithin(ctx context.Context, _ time.Duration, calls []sluice.TakeCall) {
	s.calls.Add(1)
	time.Sleep(trip / 2)
	defer time.Sleep(trip / 2)
	s.Store.TakeEach(ctx, calls)
}

func (*server) Shard(string) int { return 0 }

func (*server) Heartbeat(context.Context, string) (int, error) { return 1, nil }

// fleet is so many processes, which are asked for one key at random times, demand times as often as
// the limit lets pass.
type fleet struct {
	nodes   int
	rate    int64 // units a second
	horizon time.Duration
	demand  float64
	// lasts is how long it is watched, after it has had as long to use up the burst.
	lasts time.Duration
}

// burst is four times what passes within the horizon, which makes that the horizon.
func (f fleet) burst() int64 { return int64(4 * float64(f.rate) * f.horizon.Seconds()) }

func (f fleet) plan() *sluice.Plan {
	plan, err := sluice.NewPlan(sluice.Limit{Count: f.rate, Period: time.Second, Burst: f.burst()})
	if err != nil {
		panic(err) // the limits are constants
	}
	return plan
}

// outcome is what was seen of a fleet: all of it, and from the time on that the burst was used up.
type outcome struct {
	asked, calls, admitted int
	exact                  int // that one bucket would have admitted
	over                   int // of those that were admitted, how many the exact bucket refuses
}

func (o outcome) callsADecision() float64 { return float64(o.calls) / float64(o.asked) }

// under is the share of what one bucket admits that the fleet does not, in percent.
func (o outcome) under() float64 { return 100 * float64(o.exact-o.admitted) / float64(o.exact) }

// watch sends requests to the nodes of a fleet, which return whether they admit one and at which microsecond. The
// times of the requests are the same for all fleets.
func (f fleet) watch(plan *sluice.Plan, ask func(node int) (at int64, ok bool), calls func() int64) (o outcome) {
	var mu sync.Mutex
	var asked, admitted []int64
	random := rand.New(rand.NewPCG(1, uint64(f.nodes)))
	var all sync.WaitGroup
	began := time.Now()
	watched := began.Add(f.lasts)
	callsBefore := int64(-1)
	for next := began; next.Before(watched.Add(f.lasts)); {
		if callsBefore < 0 && next.After(watched) {
			callsBefore = calls()
		}
		next = next.Add(time.Duration(random.ExpFloat64() / (float64(f.rate) * f.demand) * float64(time.Second)))
		time.Sleep(time.Until(next))
		asked = append(asked, time.Now().UnixMicro())
		node := random.IntN(f.nodes)
		all.Go(func() {
			if at, ok := ask(node); ok {
				mu.Lock()
				defer mu.Unlock()
				admitted = append(admitted, at)
			}
		})
	}
	all.Wait()
	from := watched.UnixMicro()
	o.calls = int(calls() - callsBefore)
	slices.Sort(admitted)
	exact, _ := bucket(plan, asked)
	_, refused := bucket(plan, admitted)
	o.asked, o.admitted, o.exact, o.over = since(asked, from), since(admitted, from), since(exact, from), len(refused)
	return o
}

// since counts the times from one on.
func since(times []int64, from int64) int {
	at, _ := slices.BinarySearch(times, from)
	return len(times) - at
}

// bucket puts a unit at each of the times, in order, through one exact bucket.
func bucket(plan *sluice.Plan, times []int64) (admitted, refused []int64) {
	var state kernel.State
	for _, at := range times {
		var r kernel.Receipt
		if state = plan.Step(state, at, 1, &r); r.Fits {
			admitted = append(admitted, at)
		} else {
			refused = append(refused, at)
		}
	}
	return admitted, refused
}
