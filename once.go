package sluice

import (
	"fmt"
	"hash/fnv"
	"time"
)

// NewOnce returns the plan of a charge that makes a Take happen only once within a time: it has room
// for one unit, and then for none until that time is over. The charge costs 1, under a key of its
// own that identifies the request, and comes before those of locks. It is taken together with the
// others, so if it does not fit, they have been taken before: such a Take changes nothing, and
// is no offence ([Offends]). A store that runs out of room evicts it before any limit. While a
// shared store is away, a repeat is known only to the instance that let the first one through.
func NewOnce(within time.Duration) (*Plan, error) {
	p, err := NewPlan(Limit{Count: 1, Period: within})
	if err != nil {
		return nil, &usageError{fmt.Errorf("sluice: once within %v: %w", within, err)}
	}
	h := fnv.New64a()
	fmt.Fprint(h, "once ", within)
	p.Once, p.Fingerprint = true, h.Sum64()
	return p, nil
}
