package sluice

import (
	"container/list"
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/sluicehq/sluice/kernel"
)

// holdAgain is the time between renewals of a permit by a [Holder]: several renewals may fail before the permit is
// lost.
const holdAgain = kernel.PermitLasts / 5

// oweAgain is the time after which a [Holder] tries again to give back permits. maxOwed is the largest number of
// permits that wait to be given back.
const (
	oweAgain = kernel.PermitLasts / 20
	maxOwed  = 1024
)

// NewPermit returns a unique number for Charge.Permit, which is never 0. The number is random, from a generator
// seeded by the system. A plan has at most 65,536 permits; the chance that two of them get the same number is 1 in
// 10^10.
func NewPermit() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

// Holder holds permits: it renews each permit well before it expires, until the permit is released. Permits expire
// if their process dies or stalls for [kernel.PermitLasts], or if a shared store does not answer for that time.
// Other callers can then take them, so more work may run than the plan has permits.
//
// A Holder has a timer while it holds permits, and need not be closed. It is safe for concurrent use.
type Holder struct {
	store Store

	mu    sync.Mutex
	held  list.List // *Hold, ordered by due
	owed  []owed    // permits to give back
	timer *time.Timer
	next  time.Time // when the timer fires; zero if it does not run
	busy  bool      // run is executing

	releasing int           // calls of Release under way
	quiet     chan struct{} // closed when releasing becomes 0
}

// Hold is a permit held by a [Holder].
type Hold struct {
	holder   *Holder
	charge   Charge // renews the permit
	at       *list.Element
	due      time.Time // time of the next renewal
	released bool
	left     bool // released by Leave
}

// owed is a permit to give back.
type owed struct {
	charge Charge
	until  time.Time // when the permit expires
}

// NewHolder returns a Holder for permits in store.
func NewHolder(store Store) *Holder { return &Holder{store: store} }

// Hold renews a permit until the returned Hold is released. c is the charge that took the permit: its Plan is from
// [NewInFlight], and its Take was committed.
func (h *Holder) Hold(c Charge) *Hold {
	c.Key, c.Cost, c.Shadow, c.Until = strings.Clone(c.Key), 1, true, 0
	hold := &Hold{holder: h, charge: c, due: time.Now().Add(holdAgain)}
	h.mu.Lock()
	defer h.mu.Unlock()
	hold.at = h.held.PushBack(hold)
	h.arm(hold.due)
	return hold
}

// GiveBack gives back the permit of charge c in the background. Call it if the Take of c got no answer: the store
// may have taken the permit. GiveBack tries again until the store confirms it, or until the permit has expired.
func (h *Holder) GiveBack(c Charge) {
	c.Key, c.Cost, c.Shadow, c.Until = strings.Clone(c.Key), -1, true, 0
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owe(owed{c, now.Add(kernel.PermitLasts)})
	h.arm(now.Add(oweAgain))
}

// owe adds a permit to give back. If too many permits are owed, it drops this one, which then expires.
func (h *Holder) owe(o owed) {
	if len(h.owed) < maxOwed {
		h.owed = append(h.owed, o)
	}
}

// Release gives the permit back. Releasing it again does nothing, and returns nil. After an error, or if a fallback
// answered in place of a shared store, the Holder tries again in the background. The permit is free after
// [kernel.PermitLasts] at the latest.
func (p *Hold) Release(ctx context.Context) error { return p.holder.Release(ctx, p) }

// Leave stops renewing the permit without giving it back, so that another process can take it over. The permit
// becomes free after [kernel.PermitLasts], unless its new owner renews it with the charge that Leave returns.
func (p *Hold) Leave() Charge {
	h := p.holder
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.drop(p) {
		p.left = true
	}
	return p.charge
}

// Release does what [Hold.Release] does for several holds at once, and returns the first error.
func (h *Holder) Release(ctx context.Context, holds ...*Hold) (err error) {
	h.begin() // before a permit is released, so that no waiting call misses it
	defer h.end()
	if holds = h.markReleased(holds); len(holds) == 0 {
		return nil
	}
	calls := takeCalls(len(holds), func(i int) Charge { return holds[i].back() })
	if len(calls) == 1 {
		calls[0].Err = h.store.Take(ctx, calls[0].Charges, calls[0].Receipts)
	} else {
		TakeEach(ctx, h.store, calls)
	}
	for i := range calls {
		if !confirmed(&calls[i]) {
			h.GiveBack(calls[i].Charges[0])
		}
		if err == nil {
			err = calls[i].Err
		}
	}
	return err
}

// ReleaseAll releases all permits, for a process that shuts down. It also waits for running calls of Release, until
// ctx is done.
func (h *Holder) ReleaseAll(ctx context.Context) error {
	h.mu.Lock()
	var all []*Hold
	for e := h.held.Front(); e != nil; e = e.Next() {
		all = append(all, e.Value.(*Hold))
	}
	h.mu.Unlock()
	err := h.Release(ctx, all...)
	select {
	case <-h.released():
	case <-ctx.Done():
	}
	return err
}

func (h *Holder) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releasing++
}

func (h *Holder) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.releasing--; h.releasing == 0 && h.quiet != nil {
		close(h.quiet)
		h.quiet = nil
	}
}

// released returns a channel that is closed as soon as no call of Release is running.
func (h *Holder) released() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quiet == nil {
		h.quiet = make(chan struct{})
	}
	quiet := h.quiet
	if h.releasing == 0 {
		close(quiet)
		h.quiet = nil
	}
	return quiet
}

// confirmed reports whether the store itself made the Take, and not a fallback.
func confirmed(c *TakeCall) bool { return c.Err == nil && !c.Receipts[0].Origin.Degraded() }

// markReleased marks holds as released, and returns those that were not released before.
func (h *Holder) markReleased(holds []*Hold) []*Hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh := make([]*Hold, 0, len(holds))
	for _, p := range holds {
		if h.drop(p) {
			fresh = append(fresh, p)
		}
	}
	return fresh
}

// drop marks p as released. It reports false if p was released before.
func (h *Holder) drop(p *Hold) bool {
	if p.released {
		return false
	}
	p.released = true
	h.held.Remove(p.at)
	return true
}

// back returns the charge that gives the permit back.
func (p *Hold) back() Charge {
	c := p.charge
	c.Cost = -1
	return c
}

// Held returns the number of permits held.
func (h *Holder) Held() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held.Len()
}

// arm makes the timer call run at a time, unless the timer fires earlier.
func (h *Holder) arm(at time.Time) {
	if h.busy || !h.next.IsZero() && !at.Before(h.next) {
		return // run arms the timer when it ends
	}
	h.next = at
	if wait := time.Until(at); h.timer == nil {
		h.timer = time.AfterFunc(wait, h.run)
	} else {
		h.timer.Reset(wait)
	}
}

// run renews the permits that are due, and gives back the owed ones. The timer calls it on a separate goroutine.
func (h *Holder) run() {
	h.mu.Lock()
	if h.busy {
		h.mu.Unlock()
		return // the timer was reset just as it fired
	}
	h.busy, h.next = true, time.Time{}
	due := h.dueAt(time.Now())
	h.mu.Unlock()
	h.take(len(due), func(i int) Charge { return due[i].charge })

	back := h.toGiveBack(due)
	calls := h.take(len(back), func(i int) Charge { return back[i].charge })

	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for i := range calls {
		if !confirmed(&calls[i]) && now.Before(back[i].until) {
			h.owe(back[i])
		}
	}
	h.busy = false
	if len(h.owed) > 0 {
		h.arm(now.Add(oweAgain))
	}
	if first := h.held.Front(); first != nil {
		h.arm(first.Value.(*Hold).due)
	}
}

// dueAt returns the holds that are due for renewal now or soon, and sets their next renewal.
func (h *Holder) dueAt(now time.Time) (due []*Hold) {
	for e := h.held.Front(); e != nil; e = h.held.Front() {
		p := e.Value.(*Hold)
		if p.due.Sub(now) > holdAgain/4 {
			break
		}
		p.due = now.Add(holdAgain)
		h.held.MoveToBack(e)
		due = append(due, p)
	}
	return due
}

// toGiveBack returns the owed permits, and those that were given back while run renewed them: the store may have seen
// the release before the renewal.
func (h *Holder) toGiveBack(again []*Hold) []owed {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.owed
	h.owed = nil
	until := time.Now().Add(kernel.PermitLasts)
	for _, p := range again {
		if p.released && !p.left {
			all = append(all, owed{p.back(), until})
		}
	}
	return all
}

// take makes a Take for each of n charges.
func (h *Holder) take(n int, charge func(int) Charge) []TakeCall {
	if n == 0 {
		return nil
	}
	calls := takeCalls(n, charge)
	ctx, cancel := context.WithTimeout(context.Background(), holdAgain)
	defer cancel()
	TakeEach(ctx, h.store, calls)
	return calls
}

// takeCalls returns a call for each of n charges.
func takeCalls(n int, charge func(int) Charge) []TakeCall {
	calls, charges, receipts := make([]TakeCall, n), make([]Charge, n), make([]Receipt, n)
	for i := range calls {
		charges[i] = charge(i)
		calls[i] = TakeCall{Charges: charges[i : i+1], Receipts: receipts[i : i+1]}
	}
	return calls
}
