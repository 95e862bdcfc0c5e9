package sluice

import (
	"errors"
	"fmt"
)

// ErrUsage is matched by errors of calls that are wrong whatever the state of the store: a cost
// below 1, an invalid limit, charges that a store must not be given. Retrying such a call does not
// help.
var ErrUsage = errors.New("sluice: the call is wrong")

// usageError is an error that matches ErrUsage.
type usageError struct{ error }

func usage(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

func (e *usageError) Is(target error) bool { return target == ErrUsage }

func (e *usageError) Unwrap() error { return e.error }

func wrongCost(cost int64) error {
	return usage("sluice: Take of %d units: a cost is at least 1; Peek and Refund are calls of their own", cost)
}
