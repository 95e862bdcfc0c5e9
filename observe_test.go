package sluice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// An observer sees each call that takes units once, with the result that the caller got, and no other calls.
func TestObserve(t *testing.T) {
	t.Parallel()
	store := newSpy()
	day, second := sluice.Limit{Count: 2, Period: 24 * time.Hour}, sluice.Limit{Count: 100, Period: time.Second}
	for _, limits := range [][]sluice.Limit{{day}, {day, second}} {
		l, err := sluice.NewLimiter(store, "observed", limits...)
		if err != nil {
			t.Fatal(err)
		}
		var seen []sluice.Observation
		l.Observe(func(_ context.Context, o sluice.Observation) { seen = append(seen, o) })
		ctx := t.Context()
		expect := func(key string, cost int64, d sluice.Decision, err error) {
			t.Helper()
			if len(seen) != 1 || seen[0] != (sluice.Observation{Key: key, Cost: cost, Decision: d, Err: err}) {
				t.Errorf("%d limits: %+v, want %s %d %+v %v", len(limits), seen, key, cost, d, err)
			}
			seen = nil
		}
		for _, cost := range []int64{1, 2} { // the second is denied
			d, err := l.Take(ctx, "a", cost)
			expect("a", cost, d, err)
		}
		d, err := l.TakeEach(ctx, "a", 1, make([]sluice.Decision, len(limits)))
		expect("a", 1, d, err)
		if err = l.Wait(ctx, "w", 3); !errors.Is(err, sluice.ErrNever) || len(seen) != 1 || seen[0].Decision.RetryAfter != sluice.Never {
			t.Errorf("Wait: %v, %+v", err, seen)
		}
		seen = nil
		d, err = l.TakeLimit(ctx, "b", 1, second)
		expect("b", 1, d, err)
		store.fail(errors.New("lost"))
		d, err = l.Take(ctx, "a", 1)
		expect("a", 1, d, err)
		store.fail(nil)
		_, _ = l.Take(ctx, "a", 0)
		_, _ = l.Peek(ctx, "a")
		_, _ = l.Refund(ctx, "a", 1)
		_ = l.Owe(ctx, "a", 1)
		_ = l.Reset(ctx, "a")
		if len(seen) > 0 {
			t.Errorf("%d limits: calls that take nothing were observed: %+v", len(limits), seen)
		}
	}
}

// A limiter that With returns calls the observers of the limiter it comes from, and its own.
func TestObserveWith(t *testing.T) {
	t.Parallel()
	l, err := sluice.NewLimiter(memory.New(), "plans", sluice.Limit{Count: 9, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	observe := func(l *sluice.Limiter, name string) {
		l.Observe(func(context.Context, sluice.Observation) { seen[name]++ })
	}
	for range 3 { // the third leaves spare capacity in the slice, which x and y must not share
		observe(l, "all")
	}
	plans := map[string]*sluice.Limiter{}
	for i, name := range []string{"x", "y"} {
		if plans[name], err = l.With(sluice.Limit{Count: int64(i + 1), Period: time.Hour}); err != nil {
			t.Fatal(err)
		}
		observe(plans[name], name)
	}
	_, _ = plans["x"].Take(t.Context(), "k", 1)
	if seen["all"] != 3 || seen["x"] != 1 || seen["y"] != 0 {
		t.Errorf("observers that saw a decision of x: %v", seen)
	}
}

func TestObserveSemaphore(t *testing.T) {
	t.Parallel()
	s := semaphore(t, memory.New(), 1)
	var seen []sluice.Observation
	s.Observe(func(_ context.Context, o sluice.Observation) { seen = append(seen, o) })
	release, first, _ := s.Acquire(t.Context(), "a")
	_, second, _ := s.Acquire(t.Context(), "a")
	if held := s.Held(); held != 1 {
		t.Errorf("%d permits are held", held)
	}
	release()
	_, _ = s.Peek(t.Context(), "a")
	_ = s.Reset(t.Context(), "a")
	if len(seen) != 2 || seen[0] != (sluice.Observation{Key: "a", Cost: 1, Decision: first}) || seen[1].Decision != second || second.Allowed {
		t.Errorf("observed %+v, want %+v, then %+v", seen, first, second)
	}
}
