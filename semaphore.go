package sluice

import (
	"context"
	"math/rand/v2"
	"time"
)

// Semaphore lets no more than so many of a key be under way at the same time: calls of a worker,
// requests of a client, queries of a database. Those over one store that have the same name share
// their places, and a [Limiter] of that name has nothing to do with them.
//
// A place is held until it is released, for as long as that takes: see [Holder], which also says when
// more than so many may be under way. Errors match [ErrUsage] if the call is wrong. All others are the
// store's or the context's.
type Semaphore struct {
	// OnError says what holds while a shared store does not answer, as of a [Limiter]. Set it before
	// the first use.
	OnError OnError

	store  Store
	plan   *Plan
	prefix string // of all keys
	holder *Holder
}

// NewSemaphore returns a semaphore with so many places for each key, from 1 to 65,536, that counts in
// store. The name keeps its keys apart from those of others on the same store, and may be empty.
func NewSemaphore(store Store, name string, places int64) (*Semaphore, error) {
	if store == nil {
		return nil, usage("sluice: NewSemaphore needs a store: memory.New() is one")
	}
	plan, err := NewInFlight(places)
	if err != nil {
		return nil, err
	}
	return &Semaphore{store: store, plan: plan, prefix: string(append(AppendKeyPart(nil, name), '!')), holder: NewHolder(store)}, nil
}

// Acquire takes a place of a key if one is free, and does not wait: Allowed of the decision says
// whether one was. Call release when what it is for has ended; it may be called again, and is never
// nil. What OnError alone lets pass has no place.
func (s *Semaphore) Acquire(ctx context.Context, key string) (release func(), d Decision, err error) {
	c := s.charge(key, 1)
	c.Place = NewPlaceNumber()
	if d, err = s.take(ctx, c); err != nil || d.Origin == ByOnError {
		s.holder.GiveBack(c) // which the store may have counted, and nobody has heard of it
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

// Between two tries of Wait lies a random time of up to firstPause, then up to twice as much and so
// on, so that those who wait for the same place neither come together nor all the time.
const (
	firstPause = 5 * time.Millisecond
	longPause  = 250 * time.Millisecond
)

// Wait takes a place, and waits until one is free. Who waits is not served in order. It fails once the
// context has ended, and where the store does. Where OnError is Deny it waits for the store, too.
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

// Peek returns the decision without taking a place: Remaining says how many are free.
func (s *Semaphore) Peek(ctx context.Context, key string) (Decision, error) {
	return s.take(ctx, s.charge(key, 0))
}

// Reset frees all places of a key. Those that are still held are taken again within seconds, as far
// as they are free then.
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
