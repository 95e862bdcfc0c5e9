// Package faultstore is a shared store for tests that fails, hangs or is slow on command. It has the methods that
// packages failover, lease and synced need.
package faultstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// Store passes calls to a backing store that never fails. If a fault is set, the fault handles the calls instead.
// Its methods and fields are safe for concurrent use.
type Store struct {
	// Calls counts the calls that have reached the store, without probes. Probes counts the probes of a
	// failover.Store.
	Calls, Probes atomic.Int64
	// Others is the number of further instances that are alive, but do not send heartbeats to this store.
	Others atomic.Int64
	// Silent makes heartbeats fail.
	Silent atomic.Bool

	backing atomic.Pointer[sluice.Store]
	fault   atomic.Pointer[Fault]
	known   atomic.Pointer[func(c Call) bool]
	parts   atomic.Pointer[func(key string) int]
	ids     sync.Map
}

// New returns a store without a fault.
func New(backing sluice.Store) *Store {
	s := &Store{}
	s.Restart(backing)
	return s
}

// Restart replaces the backing store. The counts of the previous one are lost.
func (s *Store) Restart(backing sluice.Store) { s.backing.Store(&backing) }

// Set sets the fault of all later calls. Nil means no fault.
func (s *Store) Set(f Fault) {
	if f == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&f)
}

// Know sets a function that decides calls locally. TakeWithin calls the backing store only if f returns false.
func (s *Store) Know(f func(c Call) bool) { s.known.Store(&f) }

// Split divides the keys among shards: the function part returns the shard of a key.
func (s *Store) Split(part func(key string) int) { s.parts.Store(&part) }

// Take implements [sluice.Store].
func (s *Store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if strings.HasPrefix(charges[0].Key, "failover/") {
		s.Probes.Add(1)
	} else {
		s.Calls.Add(1)
	}
	c := Call{charges, receipts, *s.backing.Load()}
	if f := s.fault.Load(); f != nil {
		return (*f)(ctx, c)
	}
	return c.Take()
}

// TakeWithin is Take with a deadline. If the wait is 0, it decides only calls that the function of Know decides.
func (s *Store) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if f := s.known.Load(); f != nil && (*f)(Call{charges, receipts, *s.backing.Load()}) {
		return nil
	}
	if wait <= 0 {
		return NotSent{}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.Take(ctx, charges, receipts)
}

// TakeEach makes each call in turn.
func (s *Store) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	for i := range calls {
		calls[i].Err = s.Take(ctx, calls[i].Charges, calls[i].Receipts)
	}
}

// TakeEachWithin makes each call in turn, within one deadline.
func (s *Store) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	until := time.Now().Add(wait)
	for i := range calls {
		calls[i].Err = s.TakeWithin(ctx, time.Until(until), calls[i].Charges, calls[i].Receipts)
	}
}

// Shard returns the shard of a key.
func (s *Store) Shard(key string) int {
	if f := s.parts.Load(); f != nil {
		return (*f)(key)
	}
	return 0
}

// Heartbeat returns how many instances have sent heartbeats, plus Others.
func (s *Store) Heartbeat(_ context.Context, id string) (int, error) {
	if s.Silent.Load() {
		return 0, errRefused
	}
	s.ids.Store(id, true)
	n := int(s.Others.Load())
	s.ids.Range(func(any, any) bool { n++; return true })
	return n, nil
}

// Used returns how many units are counted under a key in the backing store, including units owed above the limit.
func (s *Store) Used(t testing.TB, key string, plan *sluice.Plan) int64 {
	t.Helper()
	var r [1]sluice.Receipt
	if err := (*s.backing.Load()).Take(t.Context(), []sluice.Charge{{Key: key, Plan: plan}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return plan.Capacity - plan.Decide(0, r[0]).Remaining + plan.Owed(&r[0].Receipt)
}

// Call is a Take that a fault handles on its way to the backing store.
type Call struct {
	Charges  []sluice.Charge
	Receipts []sluice.Receipt
	backing  sluice.Store
}

// Take lets the backing store decide, even if the caller has left.
func (c Call) Take() error { return c.backing.Take(context.Background(), c.Charges, c.Receipts) }

// Fault handles a call in place of the store.
type Fault func(ctx context.Context, c Call) error

var errRefused = errors.New("connection refused")

// NotSent is the error of a call that has certainly not been charged.
type NotSent struct{}

func (NotSent) Error() string    { return "not sent" }
func (NotSent) NotCharged() bool { return true }

// Refused fails at once. The caller cannot know whether anything was charged.
func Refused(context.Context, Call) error { return errRefused }

// Unsent fails at once. The caller knows that nothing was charged.
func Unsent(context.Context, Call) error { return NotSent{} }

// Frozen neither answers nor charges.
func Frozen(ctx context.Context, _ Call) error {
	<-ctx.Done()
	return ctx.Err()
}

// Mute charges, but does not answer.
func Mute(ctx context.Context, c Call) error {
	if err := c.Take(); err != nil {
		return err
	}
	return Frozen(ctx, c)
}

// Deaf answers after an hour, even if the context has ended.
func Deaf(context.Context, Call) error {
	time.Sleep(time.Hour)
	return errRefused
}

// Late returns a fault that charges, and answers after the time that f returns.
func Late(f func() time.Duration) Fault {
	return func(ctx context.Context, c Call) error {
		select {
		case <-time.After(f()):
			return c.Take()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Far is the fault of a distant store. The function way is called for the time that the call takes, and again for
// the time that the answer takes. If the function lost is not nil and returns true, the answer never arrives.
func Far(way func() time.Duration, lost func() bool) Fault {
	return func(ctx context.Context, c Call) error {
		if err := travel(ctx, way()); err != nil {
			return err
		}
		answer := slices.Clone(c.Receipts)
		err := Call{c.Charges, answer, c.backing}.Take()
		if lost != nil && lost() {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return Frozen(ctx, c)
		}
		if err := travel(ctx, way()); err != nil {
			return err
		}
		copy(c.Receipts, answer)
		return err
	}
}

func travel(ctx context.Context, way time.Duration) error {
	if way == 0 {
		return nil
	}
	select {
	case <-time.After(way):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Clocked is a backing store with a clock that a test can set back.
type Clocked struct {
	TakerAt
	behind atomic.Int64
}

// TakerAt is a store that gets the time as an argument, such as a memory store.
type TakerAt interface {
	TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
}

// NewClocked returns a store that passes each Take to the given store, with the time of its own clock.
func NewClocked(store TakerAt) *Clocked { return &Clocked{TakerAt: store} }

// SetBack sets the clock back by d, in addition to earlier calls.
func (c *Clocked) SetBack(d time.Duration) { c.behind.Add(d.Microseconds()) }

// Take implements [sluice.Store].
func (c *Clocked) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return c.TakeAt(ctx, time.Now().UnixMicro()-c.behind.Load(), charges, receipts)
}

// Odd is the error of a store that cannot read the values of some keys.
type Odd struct {
	Keys    []string
	Indexes []int // the indexes of the charges of these keys
}

func (o *Odd) Error() string     { return fmt.Sprintf("cannot read %v", o.Keys) }
func (o *Odd) Unreadable() []int { return o.Indexes }
func (o *Odd) NotCharged() bool  { return true }

// Spoil is the fault of a store that cannot read the given keys, or cannot read any key if none is given. The
// parameter rest is the fault for calls without such keys; nil means none.
func Spoil(rest Fault, keys ...string) Fault {
	return func(ctx context.Context, c Call) error {
		o := &Odd{}
		for i := range c.Charges {
			if key := c.Charges[i].Key; len(keys) == 0 || slices.Contains(keys, key) {
				o.Keys, o.Indexes = append(o.Keys, key), append(o.Indexes, i)
			}
		}
		switch {
		case len(o.Keys) > 0:
			return o
		case rest != nil:
			return rest(ctx, c)
		}
		return c.Take()
	}
}

// Telling is the fault of a store that is slow for calls with a cost. Such a call takes the first duration to arrive,
// and its answer takes the second.
func Telling(there, back time.Duration) Fault {
	return func(_ context.Context, c Call) error {
		if c.Charges[0].Cost == 0 {
			return c.Take()
		}
		time.Sleep(there)
		err := c.Take()
		time.Sleep(back)
		return err
	}
}
