package plantest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Kernels is the smallest possible store: the kernels, a map and a mutex.
type Kernels struct {
	mu       sync.Mutex
	state    map[id]*state
	siblings kernel.Siblings
}

type id struct {
	key         string
	fingerprint uint64
}

type state struct {
	kernel.State
	kernel.Log
	permits kernel.Permits
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
		k.siblings.Most(&c.Plan.Plan)
	}
	for i, c := range charges {
		raised := *c.Plan
		raised.Plan = *c.Plan.Raised(k.siblings.Most(&c.Plan.Plan))
		charges[i].Plan = &raised
	}
	for i, c := range charges {
		receipts[i] = k.open(c).look(c, now)
	}
	for i, c := range charges {
		if s := k.open(c); sluice.Offends(charges, receipts, i) {
			s.State = c.Plan.Offend(s.State, now, &receipts[i].Receipt)
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

// look returns the receipt of a charge without committing it. It changes the state only if the clock has stepped
// back.
func (s *state) look(c sluice.Charge, now int64) (r sluice.Receipt) {
	p, cost := &c.Plan.Plan, c.CostAt(now)
	switch {
	case p.Kernel.Permits():
		r.Receipt = s.permits.Look(p, now, c.Permit, cost)
	case p.Kernel.Log():
		s.Log.Step(p, now, 0)
		r.Receipt = s.Log.Look(p, now, cost)
	default:
		var asked kernel.Receipt
		p.Step(s.State, now, cost, &asked)
		c.Owe = false
		r = s.step(c, now, 0)
		r.Fits = asked.Fits
	}
	return r
}

func (s *state) step(c sluice.Charge, now, cost int64) (r sluice.Receipt) {
	switch p := &c.Plan.Plan; {
	case p.Kernel.Permits():
		r.Receipt = s.permits.Step(p, now, c.Permit, cost)
	case p.Kernel.Log() && c.Owe:
		r.Receipt = s.Log.Owe(p, now, cost)
	case p.Kernel.Log():
		r.Receipt = s.Log.Step(p, now, cost)
	case c.Owe:
		s.State = p.Owe(s.State, now, cost, &r.Receipt)
	default:
		s.State = p.Step(s.State, now, cost, &r.Receipt)
	}
	return r
}
