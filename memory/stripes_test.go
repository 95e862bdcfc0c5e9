package memory

import (
	"math/rand/v2"
	"testing"
)

// TestStripesAreEven holds that the fullest stripe, for which all planes are made, gets hardly more
// keys than the others, however many there are.
func TestStripesAreEven(t *testing.T) {
	t.Parallel()
	const each = 300
	for _, size := range []int64{minBytes, 3 << 20, 100 << 20, 1 << 30, 3 << 29, 5 << 30} {
		n := stripesFor(size / 2)
		s, rng, keys := &Store{stripes: make([]stripe, n)}, rand.New(rand.NewPCG(1, 1)), make([]int, n)
		for range n * each {
			keys[s.placed(rng.Uint64())>>stripeShift]++
		}
		for i, n := range keys { // six standard deviations
			if n < each-105 || n > each+105 {
				t.Errorf("%d bytes: stripe %d of %d has %d keys, and the average is %d", size, i, len(keys), n, each)
				break
			}
		}
	}
}
