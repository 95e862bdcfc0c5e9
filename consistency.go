package sluice

import "fmt"

// Consistency is how exactly the processes that share a store count a [Charge] together. Stores that
// are not shared count exactly, and ignore it.
type Consistency uint8

const (
	// Strict: the shared store is asked each time. Nothing is ever admitted above the limit.
	Strict Consistency = iota
	// Leased: a process reserves units that will be free soon, and spends them without asking.
	// Nothing is ever admitted above the limit either; a little less may be. See package lease.
	Leased
	// Synced: each process counts for itself, and tells the others several times a second. Until
	// they have heard of it, they admit what it has used up. See package synced.
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

// String returns what [ParseConsistency] reads.
func (c Consistency) String() string { return consistencyNames[min(c, Synced)] }

// Leasable returns nil where a process may count by the plan without asking the shared store each
// time, as [Leased] and [Synced] do: a token bucket, GCRA, and windows of a fixed length. Of any
// other plan it is an error that says why not and what to use; charges of such plans are counted
// as [Strict], whatever they say.
func (p *Plan) Leasable() error {
	const use = "use token_bucket, gcra, fixed_window or sliding_window_counter"
	switch {
	case p.Kernel == Lock:
		return usage("sluice: a penalty is counted by the shared store alone")
	case p.Kernel == InFlight:
		return usage("sluice: places in flight are counted by the shared store alone")
	case p.Once:
		return usage("sluice: what happens once is known to the shared store alone")
	case p.monthly():
		return usage("sluice: months of the calendar are counted by the shared store alone: " + use + ", with a period of a fixed length")
	case p.Limit.Algorithm == LeakyBucket:
		return usage("sluice: turns in the queue of a leaky_bucket are given out by the shared store alone: " + use)
	case p.Kernel.Log():
		return usage("sluice: a log is kept by the shared store alone: "+use+", not %v", p.Limit.Algorithm)
	}
	return nil
}
