package storetest

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/turns"
)

// fleet is up to four processes that share a store, in virtual time. Some of the callers that wait in a queue leave
// it. The processes run in a synctest bubble. The store, which may be a real server, runs outside of the bubble.
type fleet struct {
	*testing.T
	*rand.Rand
	store  func(now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
	now    int64
	turns  []*sluice.Turns // one for each process
	queue  *sluice.Plan
	costs  int64     // the largest cost
	inUse  []turn    // sorted by time
	events departure // the waiting callers
	passed int64     // the number of units that have passed
	left   int
}

// turn is the turn of a caller that has passed or waits.
type turn struct{ at, cost int64 }

// caller is a waiting caller.
type caller struct {
	at      int64 // when it passes or leaves
	process int
	given   turn
	leaves  bool
	turn    turns.Turn
}

// departure is a heap of callers, by the time at which they pass or leave.
type departure []caller

func (d departure) Len() int           { return len(d) }
func (d departure) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departure) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departure) Push(c any)        { *d = append(*d, c.(caller)) }
func (d *departure) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// Take implements [sluice.Store]. Each call lets some time pass.
func (f *fleet) Take(_ context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	f.pass(f.Int64N(3_000))
	return f.store(f.now, charges, receipts)
}

// pass lets time pass, in which waiting callers pass or leave.
func (f *fleet) pass(micros int64) {
	until := f.now + micros
	for len(f.events) > 0 && f.events[0].at <= until {
		c := heap.Pop(&f.events).(caller)
		if f.advance(max(f.now, c.at)); !c.leaves {
			f.passed += c.given.cost
			continue
		}
		f.left++
		at := slices.Index(f.inUse, c.given)
		f.inUse = slices.Delete(f.inUse, at, at+1)
		f.turns[c.process].Leave(c.turn)
	}
	f.advance(until)
}

// advance sets the clocks of the store and of the processes.
func (f *fleet) advance(now int64) {
	time.Sleep(time.Duration(now-f.now) * time.Microsecond)
	f.now = now
}

// request lets a new caller make a request to one of the processes.
func (f *fleet) request(key string, others ...sluice.Charge) {
	charges := append([]sluice.Charge{{Key: key, Plan: f.queue, Cost: 1 + f.Int64N(f.costs)}}, others...)
	f.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
	receipts := make([]sluice.Receipt, len(charges))
	c := caller{process: f.IntN(len(f.turns))}
	if err := f.turns[c.process].Take(f.Context(), f, charges, receipts); err != nil {
		f.Fatal(err)
	}
	if !sluice.Admitted(charges, receipts) {
		return
	}
	i := slices.IndexFunc(charges, func(c sluice.Charge) bool { return c.Plan == f.queue })
	d := f.queue.Decide(charges[i].Cost, receipts[i])
	c.given = turn{d.Now + d.Delay.Microseconds(), charges[i].Cost}
	f.use(c.given)
	waits := false
	if c.turn, waits = charges[i].Turn(&receipts[i]); waits != (d.Delay > 0) {
		f.Fatalf("the turn is in %v, but waiting is %t", d.Delay, waits)
	}
	c.at = c.given.at
	if f.Float64() < 0.4 { // the caller waits only for a fraction of the time that a full queue takes
		if gives := f.now + f.Int64N(f.queue.Size/f.queue.Drain*f.queue.Tick); gives < c.given.at {
			c.leaves, c.at = true, gives
		}
	}
	heap.Push(&f.events, c)
}

// use records a turn, and checks that its distance to the turns before and after it keeps to the limit. A tick less
// is accepted, because turns are rounded up to ticks.
func (f *fleet) use(t turn) {
	l := f.queue.Limit
	apart := func(a, b turn) bool {
		return (b.at-a.at+f.queue.Tick)*l.Count > a.cost*l.Period.Microseconds()
	}
	i, _ := slices.BinarySearchFunc(f.inUse, t, func(a, b turn) int { return int(a.at - b.at) })
	if i > 0 && !apart(f.inUse[i-1], t) || i < len(f.inUse) && !apart(t, f.inUse[i]) {
		f.Fatalf("at %d, limit %v: the turn %+v is too close to one of %+v", f.now, l, t, f.inUse[max(0, i-1):min(len(f.inUse), i+1)])
	}
	f.inUse = slices.Insert(f.inUse, i, t)
}

// testTurns checks that the turns of a queue keep to the limit, whichever callers leave, and that the queue uses
// the limit fully.
func testTurns(t *testing.T, store TimedStore) {
	ctx, calls, done := t.Context(), make(chan func()), make(chan struct{})
	defer close(calls)
	go func() {
		for call := range calls {
			call()
			done <- struct{}{}
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		holdTurns(t, func(now int64, charges []sluice.Charge, receipts []sluice.Receipt) (err error) {
			calls <- func() { err = store.TakeAt(ctx, now, charges, receipts) }
			<-done
			return err
		})
	})
}

func holdTurns(t *testing.T, store func(int64, []sluice.Charge, []sluice.Receipt) error) {
	r := rand.New(rand.NewPCG(seed.Of(t), 7))
	start := int64(1_700_000_000_000_000)
	for n, text := range []string{"20/second burst 40", "7/second burst 30", "6000/minute burst 300"} {
		l, err := sluice.ParseLimit(text)
		if err != nil {
			t.Fatal(err)
		}
		l.Algorithm = sluice.LeakyBucket
		for processes := range 4 {
			f := &fleet{T: t, Rand: r, store: store, now: start, queue: plan(t, l), costs: 1 + int64(n+processes)%2*3}
			for range processes + 1 {
				f.turns = append(f.turns, new(sluice.Turns))
			}
			key := t.Name() + text + string(rune('1'+processes))
			beside := sluice.Charge{Key: key, Plan: plan(t, sluice.Limit{Algorithm: sluice.FixedWindow, Count: l.Count, Period: l.Period / 10}), Cost: 1}
			gap := l.Period.Microseconds() / l.Count // several times more requests are made than can pass
			var begun, counted int64
			for step := range 1500 {
				var others []sluice.Charge
				if step < 200 { // while the queue fills up, other limits deny some Takes
					others = []sluice.Charge{beside}
				} else if begun == 0 {
					begun, counted = f.now, f.passed
				}
				f.request(key, others...)
				f.pass(r.Int64N(gap/4 + 1))
			}
			share := float64(f.passed-counted) * float64(l.Period.Microseconds()) / float64(l.Count) / float64(f.now-begun)
			t.Logf("%v, %d processes, costs up to %d: %d callers left, and %.3f of the limit passed", l, processes+1, f.costs, f.left, share)
			least := 0.95
			if f.costs > 1 { // with different costs, some abandoned turns are too short to be used
				least = 0.9
			}
			if f.left < 50 || share < least || share > 1.03 {
				t.Errorf("%v, %d processes: %d callers left, and %.3f of the limit passed", l, processes+1, f.left, share)
			}
			start = f.now + 100*l.Period.Microseconds()
		}
	}
}
