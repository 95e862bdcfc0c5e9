package replay

import (
	"context"
	"math/bits"

	"github.com/sluicehq/sluice"
)

// alone is a fleet of instances that do not share their counts. Each request goes to a pseudo-random instance, the
// same in every run, as if behind a load balancer that ignores clients.
type alone struct {
	instances []Store
	requests  uint64
}

func newAlone(nodes int, maxBytes int64, newStore func(int64) Store) *alone {
	a := &alone{}
	for range nodes {
		a.instances = append(a.instances, newStore(max(1<<20, maxBytes/int64(nodes))))
	}
	return a
}

func (a *alone) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return a.instances[a.next()].TakeAt(ctx, now, charges, receipts)
}

// next returns the instance for the next request.
func (a *alone) next() int {
	a.requests++
	x := a.requests * 0x9e3779b97f4a7c15 // a mixed multiple of the golden ratio is random enough
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	hi, _ := bits.Mul64(x, uint64(len(a.instances)))
	return int(hi)
}

func (a *alone) Evicted() (n int64) {
	for _, s := range a.instances {
		n += s.Evicted()
	}
	return n
}
