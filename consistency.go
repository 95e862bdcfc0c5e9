package sluice

import (
	"fmt"

	"github.com/sluicehq/sluice/kernel"
)

// Consistency is how exactly a [Charge] is counted across the processes that share a store. Stores that are not
// shared count exactly, and ignore the Consistency.
type Consistency uint8

const (
	// Strict calls the shared store for each charge. While the store answers, nothing is admitted above the limit.
	Strict Consistency = iota
	// Leased has each process reserve units in advance, and spend them without a call to the shared store. It never
	// admits more than the limit, but may admit a little less. See package lease.
	Leased
	// Synced has each process count separately, and report its counts to the others several times a second. Until a
	// report arrives, the others may admit the same units again. See package synced.
	Synced
)

var consistencyNames = [...]string{Strict: "strict", Leased: "leased", Synced: "synced"}

// ParseConsistency reads "strict", "leased" or "synced".
func ParseConsistency(name string) (Consistency, error) {
	for c, n := range consistencyNames {
		if n == name {
			return Consistency(c), nil
		}
	}
	return 0, fmt.Errorf("unknown consistency %.40q: use strict, leased or synced", name)
}

// String returns the name that [ParseConsistency] reads.
func (c Consistency) String() string { return consistencyNames[min(c, Synced)] }

// Leasable returns nil if a process may count by the plan without a call to the shared store for each charge, as
// [Leased] and [Synced] do. It returns nil for plans of a [TokenBucket], of [GCRA], and of a [FixedWindow] or a
// [SlidingWindowCounter], unless the Period is a calendar month. For any other plan, Leasable returns an error with the
// reason and, for limits by rate, with the algorithms to use instead. Charges of these other plans are counted as
// [Strict], whatever their Consistency.
func (p *Plan) Leasable() error {
	const use = "use token_bucket, gcra, fixed_window or sliding_window_counter"
	switch {
	case p.Kernel == kernel.Lock:
		return usage("sluice: a penalty is counted by the shared store alone")
	case p.Kernel == kernel.InFlight:
		return usage("sluice: permits in flight are counted by the shared store alone")
	case p.Kernel == kernel.Distinct:
		return usage("sluice: distinct values are counted by the shared store alone")
	case p.Once:
		return usage("sluice: repeated requests are recognized by the shared store alone")
	case p.MonthDay > 0:
		return usage("sluice: months of the calendar are counted by the shared store alone: " + use + ", with a period of a fixed length")
	case p.Queue:
		return usage("sluice: turns in the queue of a leaky_bucket are given out by the shared store alone: " + use)
	case p.Kernel.Log():
		return usage("sluice: a log is kept by the shared store alone: "+use+", not %v", p.Limit.Algorithm)
	}
	return nil
}
