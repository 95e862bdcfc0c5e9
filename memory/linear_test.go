package memory_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// TestLinearizable holds that takes of some keys at once look as if they had come one after the
// other, each at the time in its receipts, while their tables grow and their cells move. That
// time is no earlier than the last change of the state, unless that has become again what it
// was by a give-back: so every other round has none. With many keys it may be earlier where a
// meter admits.
func TestLinearizable(t *testing.T) {
	t.Run("few keys", func(t *testing.T) { testLinearizable(t, false, memory.NewSize) })
	t.Run("many keys", func(t *testing.T) {
		testLinearizable(t, true, func(int64) *memory.Store { return memory.NewFilled(t) })
	})
}

func testLinearizable(t *testing.T, many bool, newSize func(int64) *memory.Store) {
	for round := range 6 {
		bucket := "20000/second burst 5"
		if round >= 4 {
			bucket = "19937/second burst 5" // fits no cell
		}
		subjects := []sluice.Charge{
			{Key: "bucket", Plan: plan(t, bucket, sluice.TokenBucket)},
			{Key: "window", Plan: plan(t, "5/200us", sluice.FixedWindow)},
			{Key: "counter", Plan: plan(t, "5/200us", sluice.SlidingWindowCounter)},
			{Key: "log", Plan: plan(t, "1000/day", sluice.SlidingWindowLogExact)},
		}
		store := newSize(256 << 10)
		least := -int64(2 * (round % 2))
		history := record(t, store, subjects, 8, 120, least, uint64(round))
		if !porcupine.CheckOperations(model(least == 0, many), history) {
			t.Errorf("round %d: no order of the takes explains the receipts", round)
		}
		if store.Stats().Evicted != 0 {
			t.Error("premise: something was evicted")
		}
	}
}

type taken struct {
	subject int
	charge  sluice.Charge
	receipt sluice.Receipt
}

// model replays receipts: it makes the same take of the state that it has. If ordered, times
// don't go back, but where a meter admits if there are many keys.
func model(ordered, many bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return [4]replayed{} },
		Step: func(state, _, output any) (bool, any) {
			return replay(state.([4]replayed), output.([]taken), ordered, many)
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

func replay(before [4]replayed, takes []taken, ordered, many bool) (ok bool, state any) {
	after, admitted := before, true
	for _, o := range takes {
		far := many && len(takes) == 1 && o.charge.Plan.Kernel == sluice.Meter && o.receipt.Fits && o.charge.Cost > 0
		if ordered && !far && before[o.subject].now > o.receipt.Now {
			return false, nil
		}
		got := after[o.subject].step(o.charge, o.charge.Cost, o.receipt.Now)
		admitted = admitted && (got.Fits || o.charge.Shadow)
	}
	if !admitted {
		after = before
	}
	for _, o := range takes {
		want := o.receipt
		r, cost := before[o.subject], o.charge.Cost
		if !admitted && want.Fits {
			cost = 0
		}
		if got := r.step(o.charge, cost, want.Now); got != want {
			return false, nil
		}
		// Who changes nothing may have looked at the clock while somebody else, whose
		// time was earlier, was about to change the state.
		if r.state != before[o.subject].state {
			r.now = want.Now
		}
		after[o.subject] = r
	}
	return true, after
}

// replayed is a state, and the time of its last change.
type replayed struct {
	state sluice.State
	now   int64
}

func (r *replayed) step(c sluice.Charge, cost, now int64) (receipt sluice.Receipt) {
	if !c.Plan.Kernel.Log() {
		r.state = c.Plan.Step(r.state, now, cost, &receipt)
		return receipt
	}
	// A log whose units all stay counts as a number, and its newest unit is of its last take.
	receipt = sluice.Receipt{Now: now, Used: r.state.Used, Tick: r.state.Tick, Fits: true}
	if cost > 0 {
		r.state = sluice.State{Used: r.state.Used + cost, Tick: now}
		receipt.Used, receipt.Tick = r.state.Used, r.state.Tick
	}
	return receipt
}

// record has clients take of one to three subjects at a time, while others bring new keys.
func record(t *testing.T, store *memory.Store, subjects []sluice.Charge, clients, takes int, least int64, seed uint64) []porcupine.Operation {
	t.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg, others sync.WaitGroup
	var done atomic.Bool
	others.Go(func() {
		brief, taker := plan(t, "1/5us", sluice.TokenBucket), (*taker)(nil)
		taker = newTaker(store, brief)
		for i := 0; !done.Load(); i++ {
			taker.one(fmt.Sprint("other ", i))
		}
	})
	start := time.Now()
	for client := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), seed))
			for range takes {
				picked := rng.Perm(len(subjects))[:1+rng.IntN(3)]
				charges, receipts := make([]sluice.Charge, len(picked)), make([]sluice.Receipt, len(picked))
				for i, s := range picked {
					charges[i] = subjects[s]
					charges[i].Cost = least + rng.Int64N(4-least)
					charges[i].Shadow = rng.IntN(8) == 0
					if charges[i].Plan.Kernel.Log() {
						charges[i].Cost = max(0, charges[i].Cost)
					}
				}
				op := porcupine.Operation{ClientId: client, Call: int64(time.Since(start))}
				if err := store.Take(t.Context(), charges, receipts); err != nil {
					t.Error(err)
					return
				}
				op.Return = int64(time.Since(start))
				var out []taken
				for i, s := range picked {
					out = append(out, taken{s, charges[i], receipts[i]})
				}
				op.Output = out
				mu.Lock()
				history = append(history, op)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	done.Store(true)
	others.Wait()
	return history
}
