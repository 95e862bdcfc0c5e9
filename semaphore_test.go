package sluice_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

// spy is a store that records its last Take, and that can be made to fail or to be slow.
type spy struct {
	sluice.Store
	before func(charges []sluice.Charge) error // called before each Take, if not nil

	mu    sync.Mutex
	last  []sluice.Charge
	err   error
	takes atomic.Int64
	delay atomic.Int64
}

func newSpy() *spy { return &spy{Store: memory.New()} }

func (s *spy) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	time.Sleep(time.Duration(s.delay.Load()))
	s.takes.Add(1)
	s.mu.Lock()
	err := s.err
	s.last = slices.Clone(charges)
	for i := range charges {
		s.last[i].Key = strings.Clone(charges[i].Key)
	}
	s.mu.Unlock()
	if err == nil && s.before != nil {
		err = s.before(charges)
	}
	if err != nil {
		return err
	}
	return s.Store.Take(ctx, charges, receipts)
}

// fail makes each Take fail, or no longer if err is nil.
func (s *spy) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func semaphore(t *testing.T, store sluice.Store, places int64) *sluice.Semaphore {
	t.Helper()
	s, err := sluice.NewSemaphore(store, "jobs", places)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// acquire calls Acquire, which must be allowed if want is true, and denied otherwise.
func acquire(t *testing.T, s *sluice.Semaphore, key string, want bool) (release func()) {
	t.Helper()
	release, d, err := s.Acquire(t.Context(), key)
	if err != nil || d.Allowed != want {
		t.Fatalf("acquire %s: %+v, %v, want allowed %v", key, d, err, want)
	}
	return release
}

func TestSemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := semaphore(t, newSpy(), 2)
		first := acquire(t, s, "a", true)
		second := acquire(t, s, "a", true)
		acquire(t, s, "b", true)()
		refused, d, err := s.Acquire(t.Context(), "a")
		if want := (sluice.Decision{RetryAfter: time.Second, Now: time.Now().UnixMicro()}); err != nil || d != want {
			t.Errorf("the third of two permits: %+v, %v, want %+v", d, err, want)
		}
		refused() // has no effect
		acquire(t, s, "a", false)
		first()
		first() // must not release another permit
		third := acquire(t, s, "a", true)
		acquire(t, s, "a", false)
		second()
		third()
		if d, err := s.Peek(t.Context(), "a"); err != nil || d.Remaining != 2 {
			t.Errorf("after all are released: %+v, %v", d, err)
		}
	})
}

// A permit is held as long as its holder renews it, and is free kernel.PermitLasts after the last renewal.
func TestSemaphoreHoldsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		release := acquire(t, semaphore(t, store, 1), "a", true)
		other := semaphore(t, store, 1)
		for range 100 {
			time.Sleep(kernel.PermitLasts / 3)
			acquire(t, other, "a", false)
		}
		store.fail(errors.New("unavailable")) // until the permit has expired
		time.Sleep(kernel.PermitLasts)
		store.fail(nil)
		acquire(t, other, "a", true)()
		release()

		release = acquire(t, other, "a", true)
		store.fail(errors.New("unavailable")) // but not until it has expired
		time.Sleep(kernel.PermitLasts * 2 / 3)
		store.fail(nil)
		time.Sleep(kernel.PermitLasts * 2 / 3)
		acquire(t, semaphore(t, store, 1), "a", false)
		release()
	})
}

// ReleaseAll releases all permits of a holder. A later Release of one of them does not call the store.
func TestHolderReleaseAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		h := sluice.NewHolder(store)
		plan := inFlight(t, 3)
		if err := h.ReleaseAll(t.Context()); err != nil || store.takes.Load() > 0 {
			t.Errorf("with no permits: %v, %d takes", err, store.takes.Load())
		}
		var holds []*sluice.Hold
		for i := range uint64(3) {
			c := sluice.Charge{Key: string('a' + rune(i/2)), Plan: plan, Cost: 1, Permit: i + 1}
			plantest.Take(t, store, c)
			holds = append(holds, h.Hold(c))
		}
		if err := h.ReleaseAll(t.Context()); err != nil || h.Held() > 0 {
			t.Errorf("%v, %d are held", err, h.Held())
		}
		for _, key := range []string{"a", "b"} {
			if r := plantest.One(t, store, key, plan, 0); r.Used > 0 {
				t.Errorf("%s: %+v", key, r)
			}
		}
		takes := store.takes.Load()
		if err := holds[1].Release(t.Context()); err != nil || store.takes.Load() > takes {
			t.Errorf("released again: %v, %d more takes", err, store.takes.Load()-takes)
		}
	})
}

// ReleaseAll waits for releases in progress, until its context ends.
func TestHolderReleaseAllWaits(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{100 * time.Millisecond: 100 * time.Millisecond, time.Minute: time.Second} {
		synctest.Test(t, func(t *testing.T) {
			store := newSpy()
			store.delay.Store(int64(takes))
			h := sluice.NewHolder(store)
			hold := h.Hold(sluice.Charge{Key: "a", Plan: inFlight(t, 1), Cost: 1, Permit: 1})
			var releasing sync.WaitGroup
			defer releasing.Wait()
			releasing.Go(func() { _ = hold.Release(context.Background()) })
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := h.ReleaseAll(ctx); err != nil || time.Since(began) != want {
				t.Errorf("%v after %v, want %v if a Take takes %v", err, time.Since(began), want, takes)
			}
		})
	}
}

// A permit that is released during its renewal is free afterwards.
func TestReleasedWhileTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		release := acquire(t, semaphore(t, store, 1), "a", true)
		store.delay.Store(int64(100 * time.Millisecond))
		time.Sleep(kernel.PermitLasts/5 + 50*time.Millisecond) // the renewal is in progress
		release()
		time.Sleep(200 * time.Millisecond)
		store.delay.Store(0)
		acquire(t, semaphore(t, store, 1), "a", true)()
	})
}

// A permit that is left to another process during its renewal stays taken.
func TestLeftWhileTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		c := sluice.Charge{Key: "a", Plan: inFlight(t, 1), Cost: 1, Permit: 1}
		plantest.Take(t, store, c)
		hold := sluice.NewHolder(store).Hold(c)
		store.delay.Store(int64(100 * time.Millisecond))
		time.Sleep(kernel.PermitLasts/5 + 50*time.Millisecond) // the renewal is in progress
		hold.Leave()
		hold.Leave()
		time.Sleep(time.Second)
		if r := plantest.One(t, store, "a", c.Plan, 0); r.Used != 1 {
			t.Errorf("%d permits are taken, want 1", r.Used)
		}
	})
}

func TestSemaphoreWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		s := semaphore(t, store, 1)
		release := acquire(t, s, "a", true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Wait(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil {
			t.Errorf("Wait for a taken permit returned %v", err)
		}
		unavailable := errors.New("unavailable")
		store.fail(unavailable)
		if _, err := s.Wait(t.Context(), "a"); !errors.Is(err, unavailable) {
			t.Errorf("Wait with an unavailable store returned %v", err)
		}
		store.fail(nil)
		release()
	})
}

// If the context ends during a call of the store, the permit that the store has taken is given back.
func TestSemaphoreLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		s := semaphore(t, lost{store}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Acquire(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Second)
		acquire(t, semaphore(t, store, 1), "a", true)()
	})
}

// A failed release is retried until the store is available again.
func TestReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		s := semaphore(t, store, 2)
		first, second := acquire(t, s, "a", true), acquire(t, s, "a", true)
		unavailable := errors.New("unavailable")
		store.fail(unavailable)
		first()
		time.Sleep(kernel.PermitLasts / 3)
		store.fail(nil)
		time.Sleep(time.Second)
		if d, err := s.Peek(t.Context(), "a"); err != nil || d.Remaining != 1 {
			t.Errorf("a second after the store is back: %+v, %v", d, err)
		}
		second()
		store.takes.Store(0)
		time.Sleep(time.Minute)
		if n := store.takes.Load(); n > 0 {
			t.Errorf("%d takes with no permits to renew or release", n)
		}
		third := acquire(t, s, "a", true)
		store.fail(unavailable) // until the permit has expired: its release is dropped
		third()
		time.Sleep(time.Minute)
		store.takes.Store(0)
		time.Sleep(time.Minute)
		if n := store.takes.Load(); n > 0 {
			t.Errorf("%d takes for a permit that has expired", n)
		}
	})
}

// lost is a store that makes each Take, and then returns the error of a context that has ended.
type lost struct{ sluice.Store }

func (l lost) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := l.Store.Take(ctx, charges, receipts); err != nil {
		return err
	}
	return ctx.Err()
}
