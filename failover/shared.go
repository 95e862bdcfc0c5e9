package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
)

// Shared is the store that a [Store] wraps. redisstore.Store implements it, and [Bulkhead] makes a Shared of any
// other store. A Shared may also be a [SharedEach].
//
// An error of TakeWithin may implement [Uncharged], if nothing was charged, or [Unreadable], which names the keys
// that the store cannot read.
type Shared interface {
	// TakeWithin is like the Take of a [sluice.Store], but returns after the duration wait at the latest, and as
	// soon as its context ends, even if its server or client library hangs. It touches neither charges nor receipts
	// after it has returned. Decisions from memory, without a call to the server, have receipts with the Origin
	// [sluice.ByDenyCache], [sluice.ByLease] or [sluice.BySync], and do not prove that the server is alive. With a
	// wait of 0, TakeWithin returns at once, and makes only decisions from memory.
	TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error

	// Shard returns the number, from 0, of the part of the store that counts a key. Parts fail independently, and
	// each gets its own circuit breaker. Shard does not call the server. Its results may change while a cluster is
	// being reconfigured.
	Shard(key string) int

	// Heartbeat, called once a second, records that the instance with the id is alive, and returns how many
	// instances were alive in the last five seconds.
	Heartbeat(ctx context.Context, id string) (instances int, err error)
}

// Observable is a [Shared] that makes additional calls to its server, as a lease.Store does to reserve units.
// ObserveCalls registers a function that is called with the charges and receipts of these calls, so that local
// allowances start with the latest state. The function is called from any goroutine.
type Observable interface {
	ObserveCalls(listener func(c *sluice.Charge, r *sluice.Receipt))
}

func observeCalls(shared Shared, listener func(c *sluice.Charge, r *sluice.Receipt)) {
	if o, ok := shared.(Observable); ok {
		o.ObserveCalls(listener)
	}
}

// Uncharged is an error of a shared store. NotCharged reports whether the charges of the Take were certainly not
// committed. If so, they are written back later. Charges that may have been committed are not written back, so that
// nothing is charged twice. After an error that is not an Uncharged, charges may have been committed.
type Uncharged interface {
	error
	NotCharged() bool
}

func notCharged(err error) bool {
	e, ok := errors.AsType[Uncharged](err)
	return ok && e.NotCharged()
}

// uncharged is an error that this package returns without a call to the shared store.
type uncharged struct{ error }

func (e uncharged) Unwrap() error  { return e.error }
func (uncharged) NotCharged() bool { return true }

var errBusy error = uncharged{errors.New("failover: too many decisions wait for the shared store")}

// bulkhead calls a store on separate goroutines.
type bulkhead struct {
	store sluice.Store
	slots chan struct{} // holds a value for each call under way
}

// Bulkhead makes a [Shared] of any store, even of a store that is slow to notice the end of a context: Take is
// called on a separate goroutine, with copies of the charges, which costs two microseconds. The parameter calls is
// the maximum number of Takes that run at once; 0 means [DefaultMaxCalls]. The store is a single part, and does not
// count instances.
func Bulkhead(store sluice.Store, calls int) Shared {
	if calls <= 0 {
		calls = DefaultMaxCalls
	}
	return &bulkhead{store, make(chan struct{}, calls)}
}

func (*bulkhead) Shard(string) int { return 0 }

func (*bulkhead) Heartbeat(context.Context, string) (int, error) { return 1, nil }

func (b *bulkhead) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait <= 0 {
		return errBusy
	}
	select {
	case b.slots <- struct{}{}:
	default:
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	charges, answer := cloned(charges), make([]sluice.Receipt, len(receipts))
	done := make(chan error, 1)
	go func() {
		defer func() { <-b.slots }()
		done <- b.call(ctx, charges, answer)
	}()
	select {
	case err := <-done:
		copy(receipts, answer)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// call turns a panic into an error, because a panic on this goroutine would end the process.
func (b *bulkhead) call(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("failover: the shared store has panicked: %v", p)
		}
	}()
	return b.store.Take(ctx, charges, receipts)
}

// cloned copies charges and their keys, which the caller may reuse after Take.
func cloned(charges []sluice.Charge) []sluice.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Key = strings.Clone(charges[i].Key)
	}
	return charges
}
