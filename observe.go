package sluice

import "context"

// Observation is the argument of the functions registered with [Limiter.Observe] and [Semaphore.Observe].
type Observation struct {
	Key  string // observers must not keep a reference to it
	Cost int64  // 1 for a Semaphore
	// Decision is zero if Err is not nil.
	Decision Decision
	Err      error
}

// observers are the functions to call with each decision.
type observers []func(context.Context, Observation)

func (all observers) call(ctx context.Context, key string, cost int64, d Decision, err error) {
	for _, f := range all {
		f(ctx, Observation{key, cost, d, err})
	}
}

// Observe registers f to be called with the decision of each Take, including those that Wait makes, on the
// goroutine of the caller, which waits for f to return. Peek, Refund, Reset and Owe are not observed, nor are calls
// with a cost below 1. Limiters made by [Limiter.With] have the same observers. Call Observe before the first use.
func (l *Limiter) Observe(f func(context.Context, Observation)) {
	l.observers = append(l.observers, f)
}

// Observe registers f to be called with the decision of each Acquire, including those that Wait makes, on the
// goroutine of the caller, which waits for f to return. Call Observe before the first use.
func (s *Semaphore) Observe(f func(context.Context, Observation)) {
	s.observers = append(s.observers, f)
}
