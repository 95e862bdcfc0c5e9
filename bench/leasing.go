package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

const (
	byLease  = "sluice/lease"
	leaseHot = "lease: one hot key, allowed"
	leased   = "Redis: 10 processes, one hot key "
	leasedBy = "Redis: 4 processes, 100,000 keys by Zipf"
)

func leaseWorks() []work {
	return []work{{leaseHot, "The limit is never reached, and no server is called", []contender{
		{store, ours, inMemory(storeTake(func() sluice.Store { return memory.New() }))},
		{byLease, ours, inMemory(storeTake(func() sluice.Store { return lease.New(near{memory.New()}) }))},
	}, deciding(1, one, plenty, time.Second, 0, 0), []string{"ns", "CPU ns", "2 threads ns", "2 threads CPU ns", "allocs", "refused"}}}
}

// leaseTimes returns works that take long, because the units that leases lose at the start have to count little.
func leaseTimes() (all []work) {
	both := []contender{{byLease, ours, true}, {shared, other, false}}
	const rate = 20_000
	for _, w := range []struct {
		name        string
		burst, asks int
	}{{"at its limit", rate, rate}, {"at half of it", rate, rate / 2}, {"at its limit, burst of 0.4 s", rate * 4 / 10, rate}} {
		all = append(all, work{leased + w.name, "20,000 a second, requested at even intervals for 20 s; over and under are fractions of the units that one exact limiter admits at the same times", both,
			onHotKey(sluice.Limit{Count: rate, Period: time.Second, Burst: int64(w.burst)}, w.asks), []string{"calls", "over", "under", "p99 µs"}})
	}
	return append(all, work{leasedBy, "1,000 a second for each key, requested by 8 callers in each process", both, byZipfOverProcesses, []string{"calls", "over", "p99 µs", "per second"}})
}

// near is a shared store without a network: calls take no time.
type near struct{ *memory.Store }

func (n near) TakeWithin(ctx context.Context, _ time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return n.Take(ctx, charges, receipts)
}

func (n near) TakeEachWithin(ctx context.Context, _ time.Duration, calls []sluice.TakeCall) {
	n.TakeEach(ctx, calls)
}

func (near) Shard(string) int { return 0 }

func (near) Heartbeat(context.Context, string) (int, error) { return 1, nil }

// storeTake decides by a store's Take.
func storeTake(open func() sluice.Store) func(int, time.Duration, int) func(string) bool {
	return func(count int, period time.Duration, _ int) func(string) bool {
		plan, err := sluice.NewPlan(limitOf(count, period))
		must(err)
		s := open()
		type call struct {
			charges  [1]sluice.Charge
			receipts [1]sluice.Receipt
		}
		calls := sync.Pool{New: func() any {
			return &call{charges: [1]sluice.Charge{{Plan: plan, Cost: 1, Consistency: sluice.Leased}}}
		}}
		return func(key string) bool {
			c := calls.Get().(*call)
			c.charges[0].Key = key
			must(s.Take(context.Background(), c.charges[:], c.receipts[:]))
			fits := c.receipts[0].Fits
			calls.Put(c)
			return fits
		}
	}
}

// fleet is a number of processes that share a server.
type fleet struct {
	server *server
	stores []sluice.Store
	close  []func()
	mode   sluice.Consistency
}

func startFleet(n int, leases bool) (*fleet, error) {
	s, err := startRedis()
	if err != nil {
		return nil, err
	}
	f := &fleet{server: s}
	for range n {
		r, err := redisstore.Open(context.Background(), "redis://"+s.addr)
		must(err)
		if !leases {
			f.stores = append(f.stores, r)
			f.close = append(f.close, func() { r.Close() })
			continue
		}
		l := lease.New(r)
		f.mode = sluice.Leased
		f.stores = append(f.stores, l)
		f.close = append(f.close, func() { l.Close(); r.Close() })
	}
	return f, nil
}

func (f *fleet) stop() {
	for _, c := range f.close {
		c()
	}
	f.server.stop()
}

// admission is a unit that a process has admitted.
type admission struct {
	at  int64 // by the server's clock
	key uint32
}

// asker is a caller in one of the processes.
type asker struct {
	charges  [1]sluice.Charge
	receipts [1]sluice.Receipt
	took     []time.Duration
	admitted []admission
}

func (a *asker) ask(s sluice.Store, key uint32) {
	began := time.Now()
	must(s.Take(context.Background(), a.charges[:], a.receipts[:]))
	a.took = append(a.took, time.Since(began))
	if a.receipts[0].Fits {
		a.admitted = append(a.admitted, admission{a.receipts[0].Now, key})
	}
}

// excess returns how many of the admissions an exact limiter would have denied.
func excess(plan *sluice.Plan, askers []*asker) (over int) {
	var all []admission
	for _, a := range askers {
		all = append(all, a.admitted...)
	}
	slices.SortFunc(all, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	states := map[uint32]kernel.State{}
	var r kernel.Receipt
	for _, a := range all {
		if states[a.key] = plan.Step(states[a.key], a.at, 1, &r); !r.Fits {
			over++
		}
	}
	return over
}

func percentile99(askers []*asker) (asked int, us float64) {
	var took []time.Duration
	for _, a := range askers {
		took = append(took, a.took...)
	}
	slices.Sort(took)
	return len(took), float64(took[len(took)*99/100]) / 1000
}

const leaseBudget = 20 * time.Second

// onHotKey sends requests for one key to ten processes, at even intervals.
func onHotKey(limit sluice.Limit, perSecond int) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		const processes = 10
		f, err := startFleet(processes, c.start.(bool))
		if err != nil {
			return nil, err
		}
		defer f.stop()
		plan, err := sluice.NewPlan(limit)
		must(err)
		askers := make([]*asker, processes)
		var all sync.WaitGroup
		before := f.server.calls()
		began := time.Now()
		for i, s := range f.stores {
			a := &asker{charges: [1]sluice.Charge{{Key: "hot", Plan: plan, Cost: 1, Consistency: f.mode}}}
			askers[i] = a
			all.Go(func() {
				for n := 0; time.Since(began) < leaseBudget; time.Sleep(time.Millisecond) {
					for due := int(time.Since(began).Seconds() * float64(perSecond) / processes); n < due; n++ {
						a.ask(s, 0)
					}
				}
			})
		}
		all.Wait()
		calls := f.server.calls() - before
		asked, p99 := percentile99(askers)
		admitted := 0
		for _, a := range askers {
			admitted += len(a.admitted)
		}
		// Of requests at even intervals, one exact limiter admits as many as its rate and its burst allow.
		var s kernel.State
		var r kernel.Receipt
		exact := 0
		for i := range asked {
			at := began.UnixMicro() + int64(i)*1_000_000/int64(perSecond)
			if s = plan.Step(s, at, 1, &r); r.Fits {
				exact++
			}
		}
		return sample{
			"calls":  calls / float64(asked),
			"over":   float64(excess(plan, askers)) / float64(exact),
			"under":  1 - float64(admitted)/float64(exact),
			"p99 µs": p99,
		}, nil
	}
}

// byZipfOverProcesses sends requests to four processes. Their keys follow Zipf's law.
func byZipfOverProcesses(c contender) (sample, error) {
	const processes, callers = 4, 8
	f, err := startFleet(processes, c.start.(bool))
	if err != nil {
		return nil, err
	}
	defer f.stop()
	plan, err := sluice.NewPlan(limitOf(1000, time.Second))
	must(err)
	keys, sequence := keysOf(100_000), zipf(100_000)
	var askers []*asker
	var all sync.WaitGroup
	before := f.server.calls()
	began := time.Now()
	for i, s := range f.stores {
		for j := range callers {
			a := &asker{charges: [1]sluice.Charge{{Plan: plan, Cost: 1, Consistency: f.mode}}}
			askers = append(askers, a)
			at := (i*callers + j) * (len(sequence) / processes / callers)
			all.Go(func() {
				for ; time.Since(began) < leaseBudget/4; at++ {
					key := sequence[at%len(sequence)]
					a.charges[0].Key = keys.at(int(key))
					a.ask(s, key)
				}
			})
		}
	}
	all.Wait()
	wall := time.Since(began).Seconds()
	calls := f.server.calls() - before
	asked, p99 := percentile99(askers)
	return sample{
		"calls":      calls / float64(asked),
		"over":       float64(excess(plan, askers)) / float64(asked),
		"p99 µs":     p99,
		"per second": float64(asked) / wall,
	}, nil
}

func leaseTargets() (all []target) {
	all = []target{
		{"lease: one hot key, CPU time over memory's", 2, false, over(leaseHot, "CPU ns", byLease, store)},
		{"lease: one hot key, allocations a decision", 0, false, figure(leaseHot, "allocs", byLease)},
		{"lease: 100,000 keys by Zipf, calls over strict", 1.0 / 3, false, over(leasedBy, "calls", byLease, shared)},
		{"lease: 100,000 keys by Zipf, p99 over strict", 1, false, over(leasedBy, "p99 µs", byLease, shared)},
		{"lease: 100,000 keys by Zipf, over the limit", 0, false, figure(leasedBy, "over", byLease)},
	}
	for _, w := range []struct {
		name  string
		under float64
	}{{"at its limit", 0.005}, {"at half of it", 0.005}, {"at its limit, burst of 0.4 s", 0.01}} {
		all = append(all,
			target{"lease: ten processes, a hot key " + w.name + ", calls a decision", 0.01, false, figure(leased+w.name, "calls", byLease)},
			target{"lease: the same, over the limit: " + w.name, 0, false, figure(leased+w.name, "over", byLease)},
			target{"lease: the same, less than the exact limiter admits: " + w.name, w.under, false, figure(leased+w.name, "under", byLease)})
	}
	return all
}
