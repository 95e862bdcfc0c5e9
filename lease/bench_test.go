package lease

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
)

// A decision from a lease, beside one in memory: make both in one run.
func BenchmarkTake(b *testing.B) {
	p := plan(b, second(1_000_000_000))
	leased := New(faultstore.New(memory.New()))
	defer leased.Close()
	for _, c := range []struct {
		name  string
		store sluice.Store
	}{{"memory", memory.New()}, {"lease", leased}} {
		b.Run(c.name, func(b *testing.B) {
			charge := [1]sluice.Charge{{Key: "customer 4711", Plan: p, Cost: 1, Consistency: sluice.Leased}}
			var r [1]sluice.Receipt
			b.ReportAllocs()
			for b.Loop() {
				if err := c.store.Take(b.Context(), charge[:], r[:]); err != nil || !r[0].Fits {
					b.Fatalf("%v, %+v", err, r)
				}
			}
			if c.store == sluice.Store(leased) && r[0].Origin != sluice.ByLease {
				b.Errorf("not leased: %+v", r)
			}
		})
		b.Run(c.name+", parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				charge := [1]sluice.Charge{{Key: "customer 4711", Plan: p, Cost: 1, Consistency: sluice.Leased}}
				var r [1]sluice.Receipt
				for pb.Next() {
					if err := c.store.Take(b.Context(), charge[:], r[:]); err != nil || !r[0].Fits {
						b.Errorf("%v, %+v", err, r)
						return
					}
				}
			})
		})
	}
}
