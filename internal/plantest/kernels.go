package plantest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
)

// Kernels is the least that a store can be: the kernels, a map and a mutex.
type Kernels struct {
	mu       sync.Mutex
	state    map[id]*state
	siblings sluice.Siblings
}

type id struct {
	key         string
	fingerprint uint64
}

type state struct {
	sluice.State
	sluice.Log
	places sluice.Places
}

// NewKernels returns an empty store.
func NewKernels() *Kernels { return &Kernels{state: map[id]*state{}} }

// Take implements [sluice.Store].
func (k *Kernels) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.take(ctx, time.Now().UnixMicro(), charges, receipts)
}

// TakeAt implements [storetest.TimedStore].
func (k *Kernels) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.take(ctx, now, charges, receipts)
}

func (k *Kernels) take(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	charges = slices.Clone(charges)
	for _, c := range charges {
		k.siblings.Most(c.Plan)
	}
	for i, c := range charges {
		charges[i].Plan = c.Plan.Raised(k.siblings.Most(c.Plan))
	}
	for i, c := range charges {
		receipts[i] = k.open(c).look(c, now)
	}
	for i, c := range charges {
		if s := k.open(c); sluice.Offends(charges, receipts, i) {
			s.State = c.Plan.Offend(s.State, now, &receipts[i])
		}
	}
	if !sluice.Admitted(charges, receipts) {
		return nil
	}
	for i, c := range charges {
		if receipts[i].Fits || c.Owe {
			receipts[i] = k.open(c).step(c, now, c.CostAt(now))
		}
	}
	return nil
}

func (k *Kernels) open(c sluice.Charge) *state {
	s := k.state[id{c.Key, c.Plan.Fingerprint}]
	if s == nil {
		s = new(state)
		k.state[id{strings.Clone(c.Key), c.Plan.Fingerprint}] = s
	}
	return s
}

// look returns the receipt for what c asks for, and commits no more than what a stepped clock asks for.
func (s *state) look(c sluice.Charge, now int64) sluice.Receipt {
	p, cost := c.Plan, c.CostAt(now)
	switch {
	case p.Kernel == sluice.InFlight:
		return s.places.Look(p, now, c.Place, cost)
	case p.Kernel.Log():
		s.Log.Step(p, now, 0)
		return s.Log.Look(p, now, cost)
	}
	var asked sluice.Receipt
	p.Step(s.State, now, cost, &asked)
	c.Owe = false
	r := s.step(c, now, 0)
	r.Fits = asked.Fits
	return r
}

func (s *state) step(c sluice.Charge, now, cost int64) (r sluice.Receipt) {
	switch p := c.Plan; {
	case p.Kernel == sluice.InFlight:
		return s.places.Step(p, now, c.Place, cost)
	case p.Kernel.Log() && c.Owe:
		return s.Log.Owe(p, now, cost)
	case p.Kernel.Log():
		return s.Log.Step(p, now, cost)
	case c.Owe:
		s.State = c.Plan.Owe(s.State, now, cost, &r)
	default:
		s.State = c.Plan.Step(s.State, now, cost, &r)
	}
	return r
}
