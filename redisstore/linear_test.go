package redisstore_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
)

// Concurrent takes of one key look as if they had come one after the other, each at a
// moment between its call and its return.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"server": redistest.Shared(t).URL(), "cluster": redistest.SharedCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t, url)
			for _, p := range []*sluice.Plan{
				plan(t, sluice.FixedWindow, "10/10d"), plan(t, sluice.SlidingWindowLog, "10/10d"),
			} {
				history := record(t, store, p, 16, 60)
				if got := porcupine.CheckOperationsTimeout(counter(p.Capacity), history, time.Minute); got != porcupine.Ok {
					t.Errorf("%v: %v", p.Limit, got)
				}
			}
		})
	}
}

type outcome struct {
	used int64
	fits bool
}

// counter is a limit in whose period nothing is given free. A store that remembers refusals may
// tell of a use without those who were under way when it learnt of it; it was too much already.
func counter(capacity int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, cost := state.(int64), input.(int64)
			fits := cost <= 0 || used+cost <= capacity
			if fits {
				used = max(0, used+cost)
			}
			told := output.(outcome)
			if !fits && !told.fits {
				return told.used <= used && told.used+cost > capacity, used
			}
			return told == outcome{used, fits}, used
		},
	}
}

// record has clients take and give back units of one key.
func record(t *testing.T, store sluice.Store, p *sluice.Plan, clients, takes int) []porcupine.Operation {
	t.Helper()
	var mu sync.Mutex
	var history []porcupine.Operation
	start := time.Now()
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(client), 1))
			var receipts [1]sluice.Receipt
			for range takes {
				cost := r.Int64N(8) - 3
				from := time.Since(start)
				err := store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: cost}}, receipts[:])
				to := time.Since(start)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				history = append(history, porcupine.Operation{
					ClientId: client, Input: cost, Call: int64(from), Return: int64(to),
					Output: outcome{receipts[0].Used, receipts[0].Fits},
				})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}
