package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
)

// Prompt marks a shared store whose Take returns as soon as its context ends, whatever
// its server or its client library does, and touches neither charges nor receipts from
// then on. Take of any other store is called on a goroutine of its own, with copies:
// two microseconds more, and what it holds on to is bounded by [Config.MaxCalls].
type Prompt interface {
	Prompt()
}

// Sharded is a shared store whose parts fail each for itself. Each gets its own circuit
// breaker. Shard returns which part counts a key, from 0 up; it answers from memory, and
// may change its mind while a cluster is being changed.
type Sharded interface {
	Shard(key string) int
}

// Beater is a shared store that counts its clients. Heartbeat, called once a second,
// notes that the instance of that id is alive, and returns how many were in the last
// five seconds.
type Beater interface {
	Heartbeat(ctx context.Context, id string) (instances int, err error)
}

// Refuser is a shared store that refuses some charges by what it remembers. Refused
// reports whether a Take of charges would be refused without asking anybody, and if so
// writes the receipts. Such an answer does not count as a sign of life.
type Refuser interface {
	Refused(charges []sluice.Charge, receipts []sluice.Receipt) bool
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

type busy struct{}

func (busy) Error() string    { return "failover: too many decisions wait for the shared store" }
func (busy) NotCharged() bool { return true }

var errBusy error = busy{}

// guard makes any store prompt.
type guard struct {
	store sluice.Store
	slots chan struct{} // as many as calls may be under way
}

func newGuard(store sluice.Store, calls int) *guard {
	return &guard{store, make(chan struct{}, calls)}
}

func (g *guard) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	select {
	case g.slots <- struct{}{}:
	default:
		return errBusy
	}
	charges, answer := cloned(charges), make([]sluice.Receipt, len(receipts))
	done := make(chan error, 1)
	go func() {
		defer func() { <-g.slots }()
		done <- g.call(ctx, charges, answer)
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
func (g *guard) call(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("failover: the shared store has panicked: %v", p)
		}
	}()
	return g.store.Take(ctx, charges, receipts)
}

// cloned copies charges and their keys, which the caller may reuse after Take.
func cloned(charges []sluice.Charge) []sluice.Charge {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Key = strings.Clone(charges[i].Key)
	}
	return charges
}
