package redisstore_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
)

// Concurrent takes of one key look as if they had come one after the other, each at a
// moment between its call and its return.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t, 1, 0)
	for name, newStore := range map[string]func(t *testing.T) sluice.Store{
		"memory":  func(*testing.T) sluice.Store { return memory.New() },
		"redis":   func(t *testing.T) sluice.Store { return open(t, server.URL()) },
		"cluster": func(t *testing.T) sluice.Store { return open(t, cluster.URL()) },
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			for _, p := range []*sluice.Plan{
				plan(t, sluice.FixedWindow, "10/10d"), plan(t, sluice.SlidingWindowLog, "10/10d"),
			} {
				history := record(t, store, p, 16, 60)
				if got := porcupine.CheckOperationsTimeout(counter(p.Capacity, name != "memory"), history, 20*time.Second); got != porcupine.Ok {
					t.Errorf("%v: %v", p.Limit, got)
				}
			}
		})
	}
}

// A history that is not linearizable is found out.
func TestCounterModel(t *testing.T) {
	call := func(client int, from, to, cost, used int64, fits bool) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: cost, Call: from, Return: to, Output: outcome{used, fits}}
	}
	for want, second := range map[bool]porcupine.Operation{
		true:  call(1, 20, 30, 1, 2, true),
		false: call(1, 20, 30, 1, 1, true), // the first has been lost
	} {
		history := []porcupine.Operation{call(0, 0, 10, 1, 1, true), second}
		if got := porcupine.CheckOperations(counter(10, false), history); got != want {
			t.Errorf("%+v: linearizable %v", second, got)
		}
	}
}

type outcome struct {
	used int64
	fits bool
}

// counter is a limit in whose period nothing is given free. A store that remembers refusals may
// tell of a use without those who were under way when it learnt of it; it was too much already.
func counter(capacity int64, remembers bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return int64(0) },
		Step: func(state, input, output any) (bool, any) {
			used, cost := state.(int64), input.(int64)
			fits := cost <= 0 || used+cost <= capacity
			if fits {
				used = max(0, used+cost)
			}
			told := output.(outcome)
			if remembers && !fits && !told.fits {
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
