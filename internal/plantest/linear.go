package plantest

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Linear checks that concurrent takes of a store look as if they had come one after the other, each at the time in
// its receipts.
type Linear struct {
	// Ordered means that the time in a receipt is never before the last change of the state. Set it unless a refund
	// can restore an earlier state.
	Ordered bool
	// MetersLate is an exception to Ordered: the time in the receipt of a charge that a meter admits may be
	// earlier.
	MetersLate bool
	// Remembers means that the receipt of a denial may show an older state, if that state denies the charge as
	// well.
	Remembers bool
	// Least is the lowest cost of a charge. If it is below 0, some charges give units back.
	Least int64
}

const linearSubjects = 4

type taken struct {
	subject int
	charge  sluice.Charge
	receipt sluice.Receipt
}

// Check lets clients make takes, each of one to three of the subjects. There may be at most four subjects. It fails
// the test unless some order of the takes explains the receipts. The periods of logs must be so long that no unit
// expires.
func (l Linear) Check(t *testing.T, store sluice.Store, subjects []sluice.Charge, clients, takes int, seed uint64) {
	t.Helper()
	history := l.record(t, store, subjects, clients, takes, seed)
	model := porcupine.Model{
		Init: func() any { return [linearSubjects]replayed{} },
		Step: func(state, _, output any) (bool, any) {
			return l.replay(state.([linearSubjects]replayed), output.([]taken))
		},
		Equal: func(a, b any) bool { return a == b },
	}
	if got := porcupine.CheckOperationsTimeout(model, history, 5*time.Minute); got != porcupine.Ok {
		t.Errorf("seed %d: %v: no order of the takes explains the receipts", seed, got)
	}
}

// replay makes the same takes, starting from the given states. It returns false if the receipts differ, and
// otherwise the states afterwards.
func (l Linear) replay(before [linearSubjects]replayed, takes []taken) (ok bool, state any) {
	after, admitted := before, true
	for _, o := range takes {
		late := l.MetersLate && len(takes) == 1 && o.charge.Plan.Kernel == kernel.Meter && o.receipt.Fits && o.charge.Cost > 0
		if l.Ordered && !late && before[o.subject].now > o.receipt.Now {
			return false, nil
		}
		got := after[o.subject].step(o.charge, o.charge.Cost, o.receipt.Now)
		admitted = admitted && (got.Fits || o.charge.Shadow)
	}
	if !admitted {
		after = before
	}
	for _, o := range takes {
		want, r, cost := o.receipt, before[o.subject], o.charge.Cost
		if !admitted && want.Fits {
			cost = 0
		}
		got := r.step(o.charge, cost, want.Now)
		if l.Remembers && !got.Fits && !want.Fits && want.Used <= got.Used && want.Used+o.charge.Cost > o.charge.Plan.Capacity {
			continue
		}
		if want.Origin = 0; got != want {
			return false, nil
		}
		// A take that changes nothing may have read the clock while another take with an earlier time was about to
		// change the state.
		if r.state != before[o.subject].state {
			r.now = want.Now
		}
		after[o.subject] = r
	}
	return true, after
}

// replayed is a state, and the time of its last change.
type replayed struct {
	state kernel.State
	now   int64
}

func (r *replayed) step(c sluice.Charge, cost, now int64) (receipt sluice.Receipt) {
	if !c.Plan.Kernel.Log() {
		r.state = c.Plan.Step(r.state, now, cost, &receipt.Receipt)
		return receipt
	}
	// The state of a log without expired units is the number of its units and the time of its last take.
	receipt = sluice.Receipt{Receipt: kernel.Receipt{Now: now, Used: r.state.Used, Tick: r.state.Tick, Fits: true}}
	if cost > 0 {
		r.state = kernel.State{Used: r.state.Used + cost, Tick: now}
		receipt.Used, receipt.Tick = r.state.Used, r.state.Tick
	}
	return receipt
}

func (l Linear) record(t *testing.T, store sluice.Store, subjects []sluice.Charge, clients, takes int, seed uint64) (history []porcupine.Operation) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for client := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), seed))
			for range takes {
				picked := rng.Perm(len(subjects))[:1+rng.IntN(min(3, len(subjects)))]
				charges, receipts := make([]sluice.Charge, len(picked)), make([]sluice.Receipt, len(picked))
				for i, s := range picked {
					charges[i] = subjects[s]
					charges[i].Cost = l.Least + rng.Int64N(4-l.Least)
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
	return history
}
