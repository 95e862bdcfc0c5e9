package answer

import (
	"math/bits"
	"slices"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy"
)

// maxVisible is the maximum number of limits that are reported to clients.
const maxVisible = 16

// top returns the most restrictive results, in the order of the document. So an answer stays small even if very
// many rules apply to the request.
func top(results []policy.Result, now int64) []policy.Result {
	var order []int
	for i := range results {
		if !results[i].Shadow {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case moreRestrictive(&results[a], &results[b], now):
			return -1
		case moreRestrictive(&results[b], &results[a], now):
			return 1
		}
		return 0
	})
	order = order[:min(maxVisible, len(order))]
	slices.Sort(order)
	most := make([]policy.Result, len(order))
	for i, n := range order {
		most[i] = results[n]
	}
	return most
}

// visible returns how many of the results are reported to clients.
func visible(results []policy.Result) (n int) {
	for i := range results {
		if !results[i].Shadow {
			n++
		}
	}
	return n
}

// MostRestrictive returns the index of the result that restricts the client most, or -1: among the results that
// deny, the one with the longest wait; if no result denies, the one with the smallest fraction left, and among equals
// the one with the longest window.
func MostRestrictive(results []policy.Result, now int64) int {
	best := -1
	for i := range results {
		if r := &results[i]; !r.Shadow && (best < 0 || moreRestrictive(r, &results[best], now)) {
			best = i
		}
	}
	return best
}

// moreRestrictive reports whether a restricts more than b.
func moreRestrictive(a, b *policy.Result, now int64) bool {
	switch {
	case a.Allowed != b.Allowed:
		return b.Allowed
	case !a.Allowed:
		return a.RetryAfter > b.RetryAfter
	}
	// a.Remaining / a.Count < b.Remaining / b.Count
	ahi, alo := bits.Mul64(uint64(a.Remaining), uint64(count(b.Plan)))
	bhi, blo := bits.Mul64(uint64(b.Remaining), uint64(count(a.Plan)))
	if ahi != bhi || alo != blo {
		return ahi < bhi || ahi == bhi && alo < blo
	}
	return effectiveWindow(a, now) > effectiveWindow(b, now)
}

// count returns the number of units of which the remaining units are a fraction.
func count(p *sluice.Plan) int64 {
	if p.Kernel == kernel.InFlight {
		return p.Capacity
	}
	return p.Limit.Count
}
