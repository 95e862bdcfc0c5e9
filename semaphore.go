package sluice

import (
	"context"
	"math/rand/v2"
	"time"
)

// Semaphore bounds how much of a key is under way at the same time: calls of a worker, requests of a
// client, queries of a database. Semaphores over one store that have the same name share their permits,
// but share nothing with a [Limiter] of that name.
//
// A permit is held until it is released, for as long as that takes: see [Holder], which also says when
// the bound may be exceeded. Errors match [ErrUsage] if the call is wrong. All others are the
// store's or the context's.
type Semaphore struct {
	// OnError applies while a shared store does not answer, as in a [Limiter]. Set it before the first use.
	OnError OnError

	store     Store
	plan      *Plan
	name      string
	prefix    string // of all keys
	holder    *Holder
	observers observers
}

// NewSemaphore returns a semaphore with that many permits for each key, from 1 to 65,536, that counts
// in store. The name keeps its keys apart from those of others on the same store, and may be empty.
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

// Held returns how many permits this process holds, of all keys.
func (s *Semaphore) Held() int { return s.holder.Held() }

// Acquire takes a permit of a key if one is free, and does not wait: the decision's Allowed reports whether one
// was. Call release when the work is done; it is never nil and may be called again. Work that only OnError lets
// pass holds no permit.
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), d Decision, err error) {
	c := s.charge(key, 1)
	c.Permit = NewPermit()
	d, err = s.take(ctx, c)
	s.observers.call(ctx, key, 1, d, err)
	if err != nil || d.Origin == ByOnError {
		s.holder.GiveBack(c) // the store may have counted it although its answer was lost
		return func() {}, d, err
	}
	if !d.Allowed {
		return func() {}, d, nil
	}
	hold := s.holder.Hold(c)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		_ = hold.Release(ctx) // what cannot be given back now is so later
	}, d, nil
}

// Wait pauses between tries for a random time of up to firstPause, which doubles up to longPause, so
// that callers waiting for the same permit neither retry in step nor too often.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// Wait takes a permit, waiting until one is free. Waiters are served in no particular order. It fails
// once the context has ended, or if the store fails. If OnError is Deny, it waits for the store, too.
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

// Peek returns the decision without taking a permit: Remaining is the number of free permits.
func (s *Semaphore) Peek(ctx context.Context, key string) (Decision, error) {
	return s.take(ctx, s.charge(key, 0))
}

// Reset frees all permits of a key. Holders that are still running take theirs again within seconds,
// if there are still free ones.
func (s *Semaphore) Reset(ctx context.Context, key string) error {
	_, err := s.take(ctx, s.charge(key, All))
	return err
}

// releaseTimeout bounds the time that giving back may take, over a store without a deadline of its own.
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
