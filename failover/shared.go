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

// Shared is what a [Store] needs of the store that it stands before. redisstore.Store is
// one, and [Bulkhead] makes one of any other store. It may be a [SharedEach], too.
//
// An error of TakeWithin may implement [Uncharged], if nothing was charged, or [Unreadable], which names the keys
// that the store cannot read.
type Shared interface {
	// TakeWithin is the Take of a [sluice.Store] that returns after wait at the latest, and as soon as its context
	// ends, whatever its server or client library does. It touches neither charges nor receipts from then on.
	// Decisions from memory, without a call to the server, have the Origin [sluice.ByDenyCache], [sluice.ByLease]
	// or [sluice.BySync] in their receipts, and do not prove that the server is alive. With a wait of 0 it returns
	// only such decisions, and at once.
	TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error

	// Shard returns which part of the store counts a key, from 0 up. Parts fail each for
	// itself, and each gets its own circuit breaker. It answers from memory, and may change
	// its mind while a cluster is being changed.
	Shard(key string) int

	// Heartbeat, called once a second, notes that the instance of that id is alive, and
	// returns how many were in the last five seconds.
	Heartbeat(ctx context.Context, id string) (instances int, err error)
}

// Overheard is a [Shared] that asks its server for more than its Takes tell of, as a lease.Store does,
// which reserves ahead. Overhear has a function told of what the server answers then, of any charge: a
// local share begins with it. The function is called from any goroutine.
type Overheard interface {
	Overhear(heard func(c *sluice.Charge, r *sluice.Receipt))
}

func overhear(shared Shared, heard func(c *sluice.Charge, r *sluice.Receipt)) {
	if o, ok := shared.(Overheard); ok {
		o.Overhear(heard)
	}
}

// Uncharged is an error of a shared store that knows whether the charges of the Take may
// have been committed. What was certainly not is written back later; what may have been
// is not, so that nothing is charged twice. Other errors leave that open.
type Uncharged interface {
	error
	NotCharged() bool
}

func notCharged(err error) bool {
	e, ok := errors.AsType[Uncharged](err)
	return ok && e.NotCharged()
}

// uncharged is an error of this package before the shared store was called.
type uncharged struct{ error }

func (e uncharged) Unwrap() error  { return e.error }
func (uncharged) NotCharged() bool { return true }

var errBusy error = uncharged{errors.New("failover: too many decisions wait for the shared store")}

// bulkhead is any store, called on goroutines of its own.
type bulkhead struct {
	store sluice.Store
	slots chan struct{} // as many as calls may be under way
}

// Bulkhead makes a [Shared] of any store, also of one that is slow to notice that a context
// has ended: Take is called on a goroutine of its own, with copies, which costs two
// microseconds. At most calls of them are held on to, or [DefaultMaxCalls] if that is 0.
// The store is one part, and counts no instances.
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

// call turns a panic into an error: on a goroutine of ours it would end the process.
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
