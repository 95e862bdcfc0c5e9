package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// Where the limit lets pass so much more than is asked for that units drain on their way, nobody waits for
// more than a reservation and the store's own answer.
func TestDrainsOnTheWay(t *testing.T) {
	for _, perSecond := range []int64{1_000, 10_000, 1_000_000, 100_000_000} {
		for _, way := range []time.Duration{0, 500 * time.Microsecond, 5 * time.Millisecond} {
			for _, asks := range []int{40, 1_000} {
				synctest.Test(t, func(t *testing.T) {
					p := plan(t, sluice.Limit{Count: perSecond, Period: time.Second})
					shared := &far{store: memory.New(), way: way, dice: newDice(t)}
					s := New(shared)
					defer s.Close()
					charge := [1]sluice.Charge{{Key: "k", Plan: p, Cost: 1, Consistency: sluice.Leased}}
					var r [1]sluice.Receipt
					for range 2 * asks {
						began, calls := time.Now(), shared.calls.Load()
						if err := s.Take(t.Context(), charge[:], r[:]); err != nil || !r[0].Fits {
							t.Fatal(err, r)
						}
						// There and back takes three ways at most. While somebody asks, two more calls fill it up.
						if took, n := time.Since(began), shared.calls.Load()-calls; took > 9*way || n > 4 {
							t.Fatalf("%d a second, %v away: a decision took %v and %d calls", perSecond, way, took, n)
						}
						time.Sleep(time.Second / time.Duration(asks))
					}
					if n := shared.calls.Load(); n > int64(asks)*3/2 {
						t.Errorf("%d a second, %v away: %d calls for %d decisions", perSecond, way, n, 2*asks)
					}
				})
			}
		}
	}
}

// forgetful is a shared store that keeps nothing of what it counts, and is no way off.
type forgetful struct{ *far }

func (f forgetful) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return f.TakeWithin(ctx, time.Hour, charges, receipts)
}

func (f forgetful) TakeWithin(ctx context.Context, _ time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	f.calls.Add(1)
	return memory.New().Take(ctx, charges, receipts)
}

// A server whose level never rises, whatever is reserved, decides in the end.
func TestForgetful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := plan(t, sluice.Limit{Count: 10_000, Period: time.Second})
		shared := forgetful{&far{store: memory.New()}}
		s := New(shared)
		defer s.Close()
		var r [1]sluice.Receipt
		for cost := range int64(100) {
			calls := shared.calls.Load()
			if err := s.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: 1 + cost%3, Consistency: sluice.Leased}}, r[:]); err != nil || !r[0].Fits {
				t.Fatal(err, r)
			}
			if n := shared.calls.Load() - calls; n > 4 {
				t.Fatalf("a decision took %d calls", n)
			}
			time.Sleep(time.Millisecond)
		}
	})
}
