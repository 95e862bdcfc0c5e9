package memory_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
)

// TestLinearizable holds that takes of some keys at once look as if they had come one after the
// other, while their tables grow and their cells move, with few keys and with so many that the clock is
// read first.
func TestLinearizable(t *testing.T) {
	for name, newStore := range map[string]func() *memory.Store{
		"few keys":  func() *memory.Store { return memory.NewSize(256 << 10) },
		"many keys": func() *memory.Store { return memory.NewFilled(t) },
	} {
		for round := range 6 {
			bucket := "20000/second burst 5"
			if round >= 4 {
				bucket = "19937/second burst 5" // fits no cell
			}
			subjects := []sluice.Charge{
				{Key: "bucket", Plan: plantest.Plan(t, bucket)},
				{Key: "window", Plan: plantest.Plan(t, "5/200us as fixed_window")},
				{Key: "counter", Plan: plantest.Plan(t, "5/200us as sliding_window_counter")},
				{Key: "log", Plan: plantest.Plan(t, "1000/day as sliding_window_log_exact")},
			}
			store := newStore()
			var others sync.WaitGroup
			var done atomic.Bool
			others.Go(func() { // brings new keys
				others := newTaker(store, plantest.Plan(t, "1/5us"))
				for i := 0; !done.Load(); i++ {
					others.one(fmt.Sprint("other ", i))
				}
			})
			least := -int64(2 * (round % 2)) // every other round has no give-backs
			plantest.Linear{Ordered: least == 0, MetersLate: name == "many keys", Least: least}.Check(t, store, subjects, 8, 120, uint64(round))
			done.Store(true)
			others.Wait()
			if store.Stats().Evicted != 0 {
				t.Error("premise: something was evicted")
			}
		}
	}
}
