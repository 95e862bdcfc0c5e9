package sluice

import (
	"context"
	"sync"
	"time"
	"unsafe"
)

// Limiter applies one [Limit], or several together, to any number of keys. Limiters on one store share their counts
// if they have the same Name and count in the same way, for example as buckets with the same rate or windows of the
// same length: see Fingerprint in [kernel.Plan]. They never share counts with the rules of a policy, whatever the
// names. To read the counts of a rule, use the engine of the policy (policy.Engine.Subject).
//
// Errors match [ErrUsage] if the call is wrong. If Wait returns without its units, the error matches [ErrNever] or
// [ErrTooLong], or is the error of the context. All other errors come from the store.
type Limiter struct {
	// OnError applies while a shared store behind a failover.Store does not answer: requests are allowed (Allow,
	// the zero value), denied (Deny), or limited by a local allowance (Local). Set it before the first use.
	OnError OnError
	// Consistency is how exactly the limiter counts across the processes that share the store. Only the stores that
	// stores.Open returns, and the stores of packages lease and synced, use it; all others count exactly. Set it before
	// the first use.
	Consistency Consistency
	// Lock, from [Penalty.Plan], locks out a key that exceeds a limit: each Take that does not fit, including those
	// that Wait makes, is an offence, unless a penalty of the key is already in force. Reset lifts the penalty. Set
	// Lock before the first use.
	Lock *Plan

	store  Store
	one    OneTaker // the store; nil if it is no OneTaker, or if a limit is a queue
	plan   *Plan    // the first of plans
	plans  []*Plan
	queue  *Plan // the LeakyBucket among plans, or nil
	name   string
	prefix string    // written before keys for which isKey is false
	calls  sync.Pool // of *call
	joints sync.Pool // of *joint, for several charges
	turns  Turns
	others others
	owing  sync.Once // guards debts
	debts  []*Plan   // plans of the charges of Owe

	observers observers
}

// call is the scratch memory for a Take of one charge. It cannot be on the stack, because a Store may pass it to
// another goroutine.
type call struct {
	charges  [1]Charge
	receipts [1]Receipt
	key      []byte
}

// NewLimiter returns a limiter that counts in store. The name distinguishes its keys from the keys of other
// limiters on the same store, and may be empty. Several limits are charged all or none; no two may have the same
// rate or window, and only one may be a [LeakyBucket].
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

// Take charges cost units, at least 1, to key, if they fit. Several limits are charged all or none, and the
// decision combines them: it has the smallest Remaining and the longest waits of any. On an error the decision is
// zero.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (d Decision, err error) {
	if cost < 1 {
		return d, wrongCost(cost)
	}
	err = l.take(ctx, key, cost, &d)
	l.observers.call(ctx, key, cost, d, err)
	return d, err
}

// Peek returns a decision without taking anything: Remaining is the cost that would fit, and Delay is the time that
// a unit would wait in a [LeakyBucket].
func (l *Limiter) Peek(ctx context.Context, key string) (d Decision, err error) {
	err = l.take(ctx, key, 0, &d)
	return d, err
}

// Refund gives back cost units, for example for work that was not done. Units beyond those in use have no effect,
// and neither has a refund to a [LeakyBucket]: use LeaveQueue to give up a turn.
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

// Wait takes cost units, and waits until they fit or, in a [LeakyBucket], until their turn. If the context's
// deadline is before that, Wait returns [ErrTooLong] at once and keeps nothing: it gives up the turn in a
// LeakyBucket for a later caller, and refunds the units of other limits. Waiters are served in no particular order,
// except those queued in a LeakyBucket. If OnError is Deny and the store is unavailable, Wait tries again once a
// second.
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

// giveBack gives up the turn of a caller, because the context has ended or will end too soon. If atOnce is true, it
// also refunds the other charges.
func (l *Limiter) giveBack(ctx context.Context, key string, cost int64, d Decision, atOnce bool) {
	_ = l.LeaveQueue(key, cost, d) // cannot fail for an admitted Take
	if !atOnce {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.Refund(ctx, key, cost) // units that cannot be given back expire
}

// sleep waits for d. If the context ends before that, it returns the context's error.
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

// take makes a Take with any cost that a Charge can have, and sets d. d must be zero, and on an error it stays
// zero.
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

// isKey reports whether the store counts under the unchanged key.
func (l *Limiter) isKey(key string) bool { return l.name == "" && plainKey(key) }

// key returns the text under which the store counts. The text may point into dst. It contains no "/", unlike the
// keys of a policy's rules.
func (l *Limiter) key(dst *[]byte, key string) string {
	if l.isKey(key) {
		return key
	}
	*dst = AppendKeyPart(append((*dst)[:0], l.prefix...), key)
	// The store keeps no reference, and dst is not reused before Take has returned.
	return unsafe.String(unsafe.SliceData(*dst), len(*dst))
}
