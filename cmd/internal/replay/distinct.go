package replay

import (
	"math"
	"math/bits"
)

// distinct estimates how many different hashes it has seen (HyperLogLog): within 5 % in 19 of 20 cases,
// and less where several are added up.
type distinct struct{ longest [1 << 11]uint8 }

func (d *distinct) add(hash uint64) {
	hash *= 0x9e3779b97f4a7c15
	hash ^= hash >> 32
	i := hash >> (64 - 11)
	d.longest[i] = max(d.longest[i], uint8(bits.LeadingZeros64(hash<<11|1<<10))+1)
}

// count returns the estimate; of nil it is 0.
func (d *distinct) count() int64 {
	if d == nil {
		return 0
	}
	const m = len(d.longest)
	sum, empty := 0.0, 0
	for _, n := range d.longest {
		sum += math.Ldexp(1, -int(n))
		if n == 0 {
			empty++
		}
	}
	estimate := 0.7213 / (1 + 1.079/float64(m)) * float64(m) * float64(m) / sum
	if estimate <= 2.5*float64(m) && empty > 0 {
		estimate = float64(m) * math.Log(float64(m)/float64(empty))
	}
	return int64(estimate + 0.5)
}
