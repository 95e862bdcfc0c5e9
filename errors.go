package sluice

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrUsage is matched by the errors of calls that are wrong in themselves, whatever the store has counted: a
	// cost below 1, an invalid limit of a [Limiter], or charges that break the contract of [Store.Take] or are too
	// many for the store. Retrying such a call does not help.
	ErrUsage = errors.New("sluice: the call is wrong")

	// ErrDuplicateCharge is returned for a Take that charges the same state twice. It matches ErrUsage.
	ErrDuplicateCharge = usage("sluice: two charges of one Take have the same key and the same kind of limit: add up their costs")

	// ErrNever is returned by [Limiter.Wait] for a cost above the capacity of the limit.
	ErrNever = errors.New("sluice: the cost is above the limit's capacity and can never fit")

	// ErrTooLong is returned by [Limiter.Wait] when the context would end before the units fit or, in a
	// [LeakyBucket], before their turn. It matches [context.DeadlineExceeded] too.
	ErrTooLong = fmt.Errorf("sluice: the context ends before the units would fit: %w", context.DeadlineExceeded)
)

// usageError makes an error match ErrUsage.
type usageError struct{ error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func (e *usageError) Is(target error) bool { return target == ErrUsage }

func (e *usageError) Unwrap() error { return e.error }

func wrongCost(cost int64) error {
	return usage("sluice: Take of %d units: must be at least 1; use Peek or Refund for other costs", cost)
}
