package failover

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
)

// SharedEach is a [Shared] that can do many Takes at once, faster than one after the other.
type SharedEach interface {
	Shared
	// TakeEachWithin is like the TakeEach of a [sluice.EachTaker], but with the semantics of TakeWithin: the whole
	// call returns after the duration wait at the latest.
	TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall)
}

// takeEachWithin makes all calls to a shared store within the duration wait.
func takeEachWithin(ctx context.Context, shared Shared, wait time.Duration, calls []sluice.TakeCall) {
	if each, ok := shared.(SharedEach); ok {
		each.TakeEachWithin(ctx, wait, calls)
		return
	}
	until := time.Now().Add(wait)
	for i := range calls {
		c := &calls[i]
		c.Err = shared.TakeWithin(ctx, min(wait, time.Until(until)), c.Charges, c.Receipts)
	}
}

// TakeEach implements [sluice.EachTaker]: each call is decided as by Take. All calls that the shared store has to
// decide are sent at once, within one deadline, and count as one call.
func (s *Store) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	b := s.sortOut(ctx, calls)
	if len(b.sent) == 0 {
		return
	}
	began := time.Now()
	s.askEach(ctx, b.sent)
	for i := range b.sent {
		c := &calls[b.indexes[i]]
		if err := b.sent[i].Err; err != nil {
			c.Err = s.afterFailure(ctx, b, i, began)
		} else {
			s.reportCall(ctx, began, nil, c.Receipts)
			b.alive = union(b.alive, s.record(b.shards[i], c.Charges, c.Receipts))
		}
	}
	for _, h := range b.alive {
		h.succeeded()
	}
	for i, h := range b.failed {
		h.failed(b.errs[i])
	}
}

// many is the state of a TakeEach.
type many struct {
	sent    []sluice.TakeCall // the calls that go to the shared store
	indexes []int             // for each of these calls, its index in the list
	shards  [][]*shard        // for each of these calls, its shards
	alive   []*shard
	failed  []*shard // without duplicates, even if several calls have failed
	errs    []error  // the error of each failed shard
}

// sortOut decides the calls that the shared store cannot decide now, and returns the other calls.
func (s *Store) sortOut(ctx context.Context, calls []sluice.TakeCall) *many {
	b := &many{}
	for i := range calls {
		c := &calls[i]
		if c.Err = sluice.CheckCharges(c.Charges, c.Receipts); c.Err == nil {
			c.Err = ctx.Err()
		}
		if c.Err != nil || len(c.Charges) == 0 {
			continue
		}
		shards := s.touched(nil, c.Charges)
		if !s.usable(shards, c.Charges) {
			c.Err = s.insteadOfShared(ctx, c.Charges, c.Receipts, true)
			continue
		}
		b.sent = append(b.sent, sluice.TakeCall{Charges: c.Charges, Receipts: c.Receipts})
		b.indexes, b.shards = append(b.indexes, i), append(b.shards, shards)
	}
	return b
}

// askEach makes calls to the shared store within the deadline. If MaxCalls calls are under way, it accepts only
// decisions that need no server.
func (s *Store) askEach(ctx context.Context, calls []sluice.TakeCall) {
	defer s.calls.Add(-1)
	if s.calls.Add(1) <= s.maxCalls {
		takeEachWithin(ctx, s.shared, s.deadline, calls)
		return
	}
	takeEachWithin(ctx, s.shared, 0, calls)
	for i := range calls {
		if err := calls[i].Err; err != nil && !errors.Is(err, sluice.ErrUsage) {
			calls[i].Err = errBusy
		}
	}
}

// afterFailure decides b.sent[i], a call for which the shared store has returned an error.
func (s *Store) afterFailure(ctx context.Context, b *many, i int, began time.Time) error {
	c, shards := &b.sent[i], b.shards[i]
	if _, odd := unreadable(c.Err); odd {
		within, cancel := context.WithDeadline(ctx, began.Add(s.deadline))
		c.Err = s.withoutUnreadable(within, c.Err, c.Charges, c.Receipts)
		if cancel(); c.Err == nil {
			s.reportCall(ctx, began, nil, c.Receipts)
			b.alive = union(b.alive, s.record(shards, c.Charges, c.Receipts))
			return nil
		}
	}
	if gone := ctx.Err(); gone != nil {
		suspect(shards)
		return gone
	}
	if errors.Is(c.Err, sluice.ErrUsage) {
		return c.Err
	}
	s.count.failed(c.Err)
	if c.Err != errBusy {
		s.reportCall(ctx, began, c.Err, c.Receipts)
		s.logFailure(shards, c.Err)
	}
	switch {
	case c.Err == errBusy:
	case len(shards) > 1:
		suspect(shards)
	case !slices.Contains(b.failed, shards[0]):
		b.failed, b.errs = append(b.failed, shards[0]), append(b.errs, c.Err)
	}
	return s.insteadOfShared(ctx, c.Charges, c.Receipts, notCharged(c.Err))
}

// union returns the shards of all, followed by the shards of more that are not in all.
func union(all, more []*shard) []*shard {
	for _, h := range more {
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}
