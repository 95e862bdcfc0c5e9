package sluice

import (
	"context"
	"math/rand/v2"
	"time"
)

// Semaphore limits how many things run at the same time for a key: jobs of workers, requests of a client, queries
// of a database. Semaphores with the same name on the same store share their permits. They share nothing with a
// [Limiter] of that name.
//
// A permit is held until it is released, however long the work takes. [Holder] describes when the number of permits
// can be exceeded. Errors match [ErrUsage] if the call is wrong. All other errors come from the store or the
// context.
type Semaphore struct {
	// OnError applies while a shared store does not answer, as for a [Limiter]. Set it before the first use.
	OnError OnError

	store     Store
	plan      *Plan
	name      string
	prefix    string // of all keys
	holder    *Holder
	observers observers
}

// NewSemaphore returns a semaphore that counts in store. Each key has the given number of permits, from 1 to
// 65,536. The name distinguishes its keys from the keys of other semaphores on the same store, and may be empty.
func NewSemaphore(store Store, name string, permits int64) (*Semaphore, error) {
	if store == nil {
		return nil, usage("sluice: NewSemaphore needs a store: memory.New() is one")
	}
	plan, err := NewInFlight(permits)
	if err != nil {
		return nil, err
	}
	return &Semaphore{store: store, plan: plan, name: name, prefix: string(append(AppendKeyPart(nil, name), '!')), holder: NewHolder(store)}, nil
}

// Name returns the name that the semaphore was made with.
func (s *Semaphore) Name() string { return s.name }

// Held returns the number of permits that this Semaphore holds, for all keys.
func (s *Semaphore) Held() int { return s.holder.Held() }

// Acquire takes a permit of a key if one is free, and does not wait. The decision's Allowed reports whether the
// work may start. Call release when the work is done; release is never nil, and calling it again does nothing. If
// the store does not answer and OnError allows the work, no permit is held.
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), d Decision, err error) {
	c := s.charge(key, 1)
	c.Permit = NewPermit()
	d, err = s.take(ctx, c)
	s.observers.call(ctx, key, 1, d, err)
	if err != nil || d.Origin == ByOnError {
		s.holder.GiveBack(c) // the store may have counted the permit, although its answer was lost
		return func() {}, d, err
	}
	if !d.Allowed {
		return func() {}, d, nil
	}
	hold := s.holder.Hold(c)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = hold.Release(ctx) // after a failure, the Holder tries again
	}, d, nil
}

// Wait pauses between attempts for a random time. The bound of this time starts at firstPause and doubles up to
// longPause, so that callers that wait for the same key do not retry all at once, or too often.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// Wait takes a permit, waiting until one is free. Waiters are served in no particular order. Wait fails if the context
// ends or the store returns an error. A denial by OnError is no error: if OnError is Deny, Wait continues while the
// shared store is unavailable.
func (s *Semaphore) Wait(ctx context.Context, key string) (release func(), err error) {
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		if err = ctx.Err(); err != nil {
			return func() {}, err
		}
		release, d, err := s.Acquire(ctx, key)
		if err != nil || d.Allowed {
			return release, err
		}
		if err = sleep(ctx, 1+rand.N(pause)); err != nil {
			return release, err
		}
	}
}

// Peek returns a decision without taking a permit: Remaining is the number of free permits.
func (s *Semaphore) Peek(ctx context.Context, key string) (Decision, error) {
	return s.take(ctx, s.charge(key, 0))
}

// Reset frees all permits of a key. Work that is still running takes its permits again within seconds, if enough
// are free.
func (s *Semaphore) Reset(ctx context.Context, key string) error {
	_, err := s.take(ctx, s.charge(key, All))
	return err
}

// releaseTimeout bounds the time for giving back a permit, in case the store has no timeout.
const releaseTimeout = time.Second

func (s *Semaphore) take(ctx context.Context, c Charge) (d Decision, err error) {
	receipts := make([]Receipt, 1)
	if err = s.store.Take(ctx, []Charge{c}, receipts); err == nil {
		s.plan.DecideInto(c.Cost, &receipts[0], &d)
	}
	return d, err
}

func (s *Semaphore) charge(key string, cost int64) Charge {
	return Charge{Key: s.prefix + string(AppendKeyPart(nil, key)), Plan: s.plan, Cost: cost, OnError: s.OnError}
}
