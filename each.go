package sluice

import "context"

// TakeCall is one of several independent Takes: see [TakeEach].
type TakeCall struct {
	Charges  []Charge
	Receipts []Receipt // as long as Charges
	Err      error     // set by TakeEach
}

// EachTaker is a [Store] that can do many Takes faster than one after the other.
type EachTaker interface {
	Store
	// TakeEach does what [Store.Take] does for each call, and sets its Err. Calls that charge the same states are
	// decided in the order of the list. (Package redisstore makes an exception on a cluster.)
	TakeEach(ctx context.Context, calls []TakeCall)
}

// TakeEach does what the store's Take does for each call, and sets its Err. The calls are made together if the
// store is an [EachTaker], and otherwise one after the other.
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

// OneTaker is a [Store] with a method for a single charge that is faster than Take.
type OneTaker interface {
	Store
	// TakeOne does what [Store.Take] does for a charge of cost units under key, and returns its receipt.
	TakeOne(ctx context.Context, key string, plan *Plan, cost int64) (Receipt, error)
}
