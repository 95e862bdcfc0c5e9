// Package fleet simulates processes that share a limit by package lease. It runs the package's own code in virtual
// time. For comparison, it also measures a few real gateways over one Redis. "make simulation" writes the results
// to ../RESULTS-fleet.md, with pictures.
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
	trip  = 500 * time.Microsecond // the time of a call to the shared store and back
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

// fleet is a number of processes, which get requests for one key at random times. demand is the ratio of the
// requested rate to the limit.
type fleet struct {
	nodes   int
	rate    int64 // units a second
	horizon time.Duration
	demand  float64
	// lasts is how long the fleet is measured. Before, it runs for the same time to use up the burst.
	lasts time.Duration
}

// burst returns the burst with which package lease chooses f.horizon as the horizon: four times the units of a
// horizon.
func (f fleet) burst() int64 { return int64(4 * float64(f.rate) * f.horizon.Seconds()) }

func (f fleet) plan() *sluice.Plan {
	plan, err := sluice.NewPlan(sluice.Limit{Count: f.rate, Period: time.Second, Burst: f.burst()})
	if err != nil {
		panic(err) // the limits are constants
	}
	return plan
}

// outcome has the measured counts of a fleet.
type outcome struct {
	asked, calls, admitted int
	exact                  int // the number of requests that one exact bucket would have admitted
	over                   int // the number of admitted requests that the exact bucket denies
}

func (o outcome) callsADecision() float64 { return float64(o.calls) / float64(o.asked) }

// under returns how many fewer requests the fleet admits than one exact bucket, in percent.
func (o outcome) under() float64 { return 100 * float64(o.exact-o.admitted) / float64(o.exact) }

// watch sends requests to the nodes of a fleet. The function ask returns whether the node admits a request, and at
// which microsecond. The requests have the same times in all fleets.
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

// since returns how many of the given times are not before the start.
func since(times []int64, start int64) int {
	at, _ := slices.BinarySearch(times, start)
	return len(times) - at
}

// bucket charges one exact bucket with a unit at each of the times, in order.
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
