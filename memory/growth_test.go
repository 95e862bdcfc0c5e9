package memory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
)

// TestCountsWhileGrowing checks that no unit is lost or counted twice while tables grow from two buckets to nearly
// their maximum. All callers add the same new keys at about the same time, and take units of known keys, alone and
// in pairs, mostly of a few hot ones.
func TestCountsWhileGrowing(t *testing.T) {
	for _, size := range []int64{minBytes, 100_000, 192 << 10} {
		g := newGrowth(t, size, uint64(size))
		g.run()
		g.check(size)
	}
}

// growth has the results that the callers got for each key.
type growth struct {
	*testing.T
	store *Seeded
	seed  uint64
	keys  []grown
}

type grown struct {
	charge  sluice.Charge
	taken   atomic.Int64
	refused atomic.Bool // a charge was denied
}

const hotKeys = 3 // the first keys

const growthNow = 20_000 * 86_400_000_000

func newGrowth(t *testing.T, size int64, seed uint64) *growth {
	g := &growth{T: t, store: NewSeededSize(t, size), seed: seed}
	var plans []*sluice.Plan
	for _, count := range []int64{1_000_000, 10} {
		for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowCounter} {
			p := plantest.Of(t, sluice.Limit{Count: count, Period: 24 * time.Hour, Algorithm: a})
			plans = append(plans, p)
		}
	}
	g.keys = make([]grown, len(g.store.tables.planes)*len(g.store.stripes)*4*7/10)
	for i := range g.keys {
		p := plans[i%hotKeys]
		if i >= hotKeys {
			p = plans[3+i%3]
		}
		g.keys[i].charge = sluice.Charge{Key: fmt.Sprint(seed, i), Plan: p, Cost: 1}
	}
	return g
}

func (g *growth) run() {
	var wg sync.WaitGroup
	for caller := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(g.seed, uint64(caller)))
			for i := range g.keys {
				g.take(rng.IntN(i + 1))
				g.take(rng.IntN(hotKeys))
				for _, other := range []int{rng.IntN(hotKeys), rng.IntN(i + 1)} {
					if i != other { // the first pair is a new key and a known one
						g.take(i, other)
					}
				}
				if i%8 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wg.Wait()
}

func (g *growth) take(keys ...int) {
	var charges [2]sluice.Charge
	var receipts [2]sluice.Receipt
	n := len(keys)
	for i, k := range keys {
		charges[i] = g.keys[k].charge
	}
	if err := g.store.TakeAt(g.Context(), growthNow, charges[:n], receipts[:n]); err != nil {
		g.Error(err)
		return
	}
	admitted := sluice.Admitted(charges[:n], receipts[:n])
	for i, k := range keys {
		switch {
		case admitted:
			g.keys[k].taken.Add(1)
		case !receipts[i].Fits:
			g.keys[k].refused.Store(true)
		}
	}
}

func (g *growth) check(size int64) {
	s := g.store
	if stats := s.StatsAt(growthNow); stats.Evicted != 0 || stats.Keys != len(g.keys) || stats.Bytes > size {
		g.Errorf("%d bytes: %+v, want %d keys and no evictions", size, stats, len(g.keys))
	}
	for i := range s.stripes {
		if st := &s.stripes[i]; int(st.size()) < len(s.tables.planes)*2/3 {
			g.Errorf("premise: %d bytes: stripe %d has grown to %d of %d buckets", size, i, st.size(), len(s.tables.planes))
		}
	}
	for i := range g.keys {
		k := &g.keys[i]
		var r [1]sluice.Receipt
		c := k.charge
		c.Cost = 0
		if err := s.TakeAt(g.Context(), growthNow, []sluice.Charge{c}, r[:]); err != nil {
			g.Fatal(err)
		}
		used, taken := c.Plan.Capacity-c.Plan.Decide(0, r[0]).Remaining, k.taken.Load()
		if used != taken || taken > c.Plan.Capacity || k.refused.Load() && taken < c.Plan.Capacity {
			g.Errorf("%d bytes, key %d: %d were admitted of %d, and %d are used; denied: %t",
				size, i, taken, c.Plan.Capacity, used, k.refused.Load())
			return
		}
	}
}
