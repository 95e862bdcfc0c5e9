package failover_test

import (
	"context"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
)

// BenchmarkTake compares a store with the same store behind failover: as it is, called
// on a goroutine of its own because it does not keep deadlines, with a local share to be
// remembered, and away.
func BenchmarkTake(b *testing.B) {
	over := func(shared failover.Shared) func(b *testing.B) sluice.Store {
		return func(b *testing.B) sluice.Store {
			s := open(shared, failover.Config{})
			b.Cleanup(s.Close)
			return s
		}
	}
	away := func(b *testing.B) sluice.Store {
		sv := faultstore.New(memory.New())
		s := over(sv)(b).(*failover.Store)
		cut(b, sv, s, faultstore.Refused)
		return s
	}
	for _, c := range []struct {
		name  string
		store func(b *testing.B) sluice.Store
		on    sluice.OnError
		local bool
	}{
		{"bare", func(*testing.B) sluice.Store { return memory.New() }, sluice.Allow, false},
		{"healthy", over(faultstore.New(memory.New())), sluice.Allow, false},
		{"healthy with a share", over(faultstore.New(memory.New())), sluice.Local, false},
		{"healthy and foreign", over(failover.Bulkhead(memory.New(), 0)), sluice.Allow, false},
		{"away", away, sluice.Local, true},
		{"away and denied", away, sluice.Deny, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := c.store(b)
			p := plan(b, "1000000000/second", sluice.TokenBucket)
			charges := []sluice.Charge{{Key: "user/alice", Plan: p, Cost: 1, OnError: c.on}}
			receipts := make([]sluice.Receipt, 1)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Take(ctx, charges, receipts); err != nil || receipts[0].Origin.Degraded() != c.local || receipts[0].Fits != (c.on != sluice.Deny) {
					b.Fatal(receipts[0], err)
				}
			}
		})
	}
}
