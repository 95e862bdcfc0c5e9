package sluice

import "context"

// TakeCall is one Take of several that have nothing to do with each other: see [TakeEach].
type TakeCall struct {
	Charges  []Charge
	Receipts []Receipt // as long as Charges
	Err      error     // set by TakeEach
}

// EachTaker is a [Store] that can do many Takes faster than one after the other.
type EachTaker interface {
	Store
	// TakeEach does what [Store.Take] does for each call, in the order of the list where they
	// charge the same states, and sets its Err.
	TakeEach(ctx context.Context, calls []TakeCall)
}

// TakeEach does what the store's Take does for each call, and sets its Err: at once if the store is
// an [EachTaker], else one after the other.
func TakeEach(ctx context.Context, store Store, calls []TakeCall) {
	if each, ok := store.(EachTaker); ok {
		each.TakeEach(ctx, calls)
		return
	}
	for i := range calls {
		c := &calls[i]
		c.Err = store.Take(ctx, c.Charges, c.Receipts)
	}
}

// OneTaker is a [Store] that takes one charge faster than a list of one.
type OneTaker interface {
	Store
	// TakeOne does what [Store.Take] does for a charge of so many units under a key, and returns its receipt.
	TakeOne(ctx context.Context, key string, plan *Plan, cost int64) (Receipt, error)
}
