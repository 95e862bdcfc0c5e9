package sluice

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// Limiter applies one [Limit], or several together, to any number of keys. Limiters over one store
// that have the same Name and count the same way, such as buckets of one rate or windows of one length,
// share their counts: see Fingerprint in [Plan]. They never share counts with
// the rules of a policy, whatever the names: to see a rule's count, ask the policy's engine.
//
// Errors match [ErrUsage] if the call is wrong, and [ErrNever], [ErrTooLong] or the context's
// error if a Wait ends without its units. All other errors come from the store.
type Limiter struct {
	// OnError applies while a shared store behind a failover.Store does not answer: requests are allowed (Allow,
	// the zero value), denied (Deny), or limited by a local allowance (Local). Set it before the first use.
	OnError OnError
	// Consistency is how exactly processes that share a store count together. Stores from stores.Open and packages
	// lease and synced heed it; all others count exactly. Set it before the first use.
	Consistency Consistency
	// Lock, from [Penalty.Plan], locks out a key that exceeds a limit: each Take that does not fit,
	// including those that Wait makes, is an offence, and Reset lifts the penalty. Set it before the first use.
	Lock *Plan

	store  Store
	one    OneTaker // the store, if it is one, and no limit is a queue; else nil
	plan   *Plan    // the first of plans
	plans  []*Plan
	queue  *Plan // the LeakyBucket among them, or nil
	name   string
	prefix string    // of all keys, except plain ones of a limiter without a name
	calls  sync.Pool // of *call
	joints sync.Pool // of *joint, for several charges
	turns  Turns
	others others
	owing  sync.Once // sets debts
	debts  []*Plan   // what Owe charges

	observers observers
}

// call is what a Take of one charge needs. It cannot be on the stack, because a Store may hand it
// to another goroutine.
type call struct {
	charges  [1]Charge
	receipts [1]Receipt
	key      []byte
}

// NewLimiter returns a limiter that counts in store. The name keeps its keys apart from
// those of other limiters on the same store, and may be empty. Several limits are charged all or
// none; no two may have the same rate or window, and only one may be a [LeakyBucket].
func NewLimiter(store Store, name string, limits ...Limit) (*Limiter, error) {
	if store == nil {
		return nil, usage("sluice: NewLimiter needs a store: memory.New() is one")
	}
	l := &Limiter{store: store, name: name, prefix: string(append(AppendKeyPart(nil, name), '!'))}
	if err := l.compile(limits); err != nil {
		return nil, err
	}
	l.plan = l.plans[0]
	if l.queue == nil {
		l.one, _ = store.(OneTaker)
	}
	l.calls.New = func() any { return &call{charges: [1]Charge{{Plan: l.plan}}} }
	l.joints.New = func() any { return newJoint(len(l.plans) + 1) }
	return l, nil
}

// Name returns the name that the limiter was made with.
func (l *Limiter) Name() string { return l.name }

// Plan returns the compiled limit, the first if there are several.
func (l *Limiter) Plan() *Plan { return l.plan }

// Take asks for cost units under key. The cost must be at least 1. It charges
// several limits all or none, and each field of the decision is that of the tightest: the fewest
// units that remain, the longest of the waits. On an error the decision is zero.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if cost < 1 {
		return d, wrongCost(cost)
	}
	err = l.take(ctx, key, cost, &d)
	l.observers.call(ctx, key, cost, d, err)
	return d, err
}

// Peek returns the decision without taking anything: Remaining is the cost that would fit, and Delay the time a
// unit would wait in a [LeakyBucket].
func (l *Limiter) Peek(ctx context.Context, key string) (d Decision, err error) {
	err = l.take(ctx, key, 0, &d)
	return d, err
}

// Refund gives back cost units, for example for work that was not done. Units given back beyond those in use are
// lost, and so are those of a [LeakyBucket], because only LeaveQueue gives up turns.
func (l *Limiter) Refund(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if cost < 1 {
		return d, usage("sluice: Refund of %d units: must be at least 1", cost)
	}
	err = l.take(ctx, key, -cost, &d)
	return d, err
}

// Reset forgets everything taken under key.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	var d Decision
	return l.take(ctx, key, All, &d)
}

// Wait takes cost units, waiting until they fit, and for its turn in a [LeakyBucket].
// If the context's deadline is sooner than that, it gives up at once and takes nothing.
// Waiters are served in no particular order, except those queued in a LeakyBucket.
// If OnError is Deny, Wait also waits for the store, and asks it once a second.
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
			l.giveBack(ctx, key, cost, d, err == ErrTooLong)
		}
		if d.Allowed || err != nil {
			return err
		}
	}
}

// giveBack gives up the turn of a caller after its context has ended, and, if atOnce, gives back its other charges.
func (l *Limiter) giveBack(ctx context.Context, key string, cost int64, d Decision, atOnce bool) {
	_ = l.LeaveQueue(key, cost, d) // it is the turn of an admitted Take
	if !atOnce {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.Refund(ctx, key, cost) // what cannot be given back is forgotten in time
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

// take sets d, which must be zero: on an error it stays zero.
func (l *Limiter) take(ctx context.Context, key string, cost int64, d *Decision) error {
	if len(l.plans) > 1 || l.Lock != nil {
		return l.takeJoint(ctx, key, cost, d, nil)
	}
	if l.one != nil && l.isKey(key) {
		r, err := l.one.TakeOne(ctx, key, l.plan, cost)
		if err == nil {
			l.plan.DecideInto(cost, &r, d)
		}
		return err
	}
	c := l.calls.Get().(*call)
	charge := &c.charges[0]
	charge.Key, charge.Cost, charge.OnError, charge.Consistency = l.key(&c.key, key), costOf(l.plan, cost), l.OnError, l.Consistency
	err := l.turns.Take(ctx, l.store, c.charges[:], c.receipts[:])
	if err == nil {
		l.turned(charge, cost, &c.receipts[0])
		l.plan.DecideInto(charge.Cost, &c.receipts[0], d)
	}
	charge.Key = ""
	l.calls.Put(c)
	return err
}

// isKey reports whether the store counts under the key as it is.
func (l *Limiter) isKey(key string) bool { return l.name == "" && plainKey(key) }

// key returns the text under which the store counts, which may point into dst. It contains no "/",
// while the key of every rule of a policy does.
func (l *Limiter) key(dst *[]byte, key string) string {
	if l.isKey(key) {
		return key
	}
	*dst = AppendKeyPart(append((*dst)[:0], l.prefix...), key)
	// The store keeps no reference, and dst is not reused before Take has returned.
	return unsafe.String(unsafe.SliceData(*dst), len(*dst))
}
