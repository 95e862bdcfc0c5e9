package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// Limiter applies one [Limit] to any number of keys. Limiters over one store that have
// the same Name and count the same way share their counts.
type Limiter struct {
	// OnError says what holds while a shared store does not answer, if a failover.Store
	// stands before it: requests pass (Allow, which is the zero value), are refused
	// (Deny), or a local share of the limit decides (Local). Set it before the first use.
	OnError OnError

	store  Store
	plan   *Plan
	name   string
	prefix string    // of all keys, but plain ones where there is no name
	calls  sync.Pool // of *call
}

// call is what a Take of one charge needs, and cannot be on the stack: a Store may hand it to
// another goroutine.
type call struct {
	charges  [1]Charge
	receipts [1]Receipt
	key      []byte
}

// NewLimiter returns a limiter that counts in store. The name keeps its keys apart from
// those of other limiters on the same store, and may be empty.
func NewLimiter(store Store, name string, limit Limit) (*Limiter, error) {
	if store == nil {
		return nil, errors.New("sluice: NewLimiter needs a store: memory.New() is one")
	}
	plan, err := NewPlan(limit)
	if err != nil {
		return nil, err
	}
	l := &Limiter{store: store, plan: plan, name: name, prefix: string(append(AppendKeyPart(nil, name), '/'))}
	l.calls.New = func() any { return new(call) }
	return l, nil
}

// Name returns the name that the limiter was made with.
func (l *Limiter) Name() string { return l.name }

// Plan returns the compiled limit.
func (l *Limiter) Plan() *Plan { return l.plan }

// Take asks for cost units under key. The cost must be at least 1. An error is the
// store's; the decision is then the zero one.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if cost < 1 {
		return d, fmt.Errorf("sluice: Take of %d units: a cost is at least 1; Peek and Refund are calls of their own", cost)
	}
	err = l.take(ctx, key, cost, &d)
	return d, err
}

// Peek returns the decision without taking anything: Remaining says what would fit.
func (l *Limiter) Peek(ctx context.Context, key string) (d Decision, err error) {
	err = l.take(ctx, key, 0, &d)
	return d, err
}

// Refund gives back cost units, for example of work that was not done. What is given
// back beyond what is used is lost.
func (l *Limiter) Refund(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if cost < 1 {
		return d, fmt.Errorf("sluice: Refund of %d units: must be at least 1", cost)
	}
	err = l.take(ctx, key, -cost, &d)
	return d, err
}

// Reset forgets all that was taken under key.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var d Decision
	return l.take(ctx, key, All, &d)
}

// ErrNever is returned by Wait for a cost above the capacity of the limit.
var ErrNever = errors.New("sluice: the cost is above the limit's capacity and can never fit")

// ErrTooLong is returned by Wait when the context would end before the units fit. It
// matches [context.DeadlineExceeded] too.
var ErrTooLong = fmt.Errorf("sluice: the context ends before the units would fit: %w", context.DeadlineExceeded)

// Wait takes cost units, waiting until they fit, and for its turn in a [LeakyBucket].
// It gives up at once, and takes nothing, where the context's deadline is nearer than
// the wait. Waiters are not served in order, except in a LeakyBucket once they are queued.
// Where OnError is Deny it waits for the store, too, and asks once a second.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) error {
	deadline, bounded := ctx.Deadline()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := l.Take(ctx, key, cost)
		if err != nil {
			return err
		}
		wait := d.Delay
		if !d.Allowed {
			wait = d.RetryAfter
		}
		switch {
		case wait == Never:
			return ErrNever
		case bounded && wait > time.Until(deadline):
			err = ErrTooLong
		default:
			err = sleep(ctx, wait)
		}
		if d.Allowed && err != nil {
			l.giveBack(ctx, key, cost)
		}
		if d.Allowed || err != nil {
			return err
		}
	}
}

// giveBack returns the place of a caller that has gone away, whose context has ended.
func (l *Limiter) giveBack(ctx context.Context, key string, cost int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// A place that cannot be given back drains by itself.
	_, _ = l.Refund(ctx, key, cost)
}

// sleep waits for d or until the context ends, and returns the context's error then.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take sets d, which is empty.
func (l *Limiter) take(ctx context.Context, key string, cost int64, d *Decision) error {
	c := l.calls.Get().(*call)
	charge := &c.charges[0]
	charge.Key, charge.Plan, charge.Cost, charge.OnError = l.key(c, key), l.plan, cost, l.OnError
	err := l.store.Take(ctx, c.charges[:], c.receipts[:])
	if err == nil {
		l.plan.decide(cost, &c.receipts[0], d)
	}
	charge.Key = ""
	l.calls.Put(c)
	return err
}

func (l *Limiter) key(c *call, key string) string {
	if l.name == "" && plainKey(key) {
		return key
	}
	c.key = AppendKeyPart(append(c.key[:0], l.prefix...), key)
	// The store keeps no reference, and c is not reused before Take has returned.
	return unsafe.String(unsafe.SliceData(c.key), len(c.key))
}
