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

// spy is a store that notes what it is asked for, and that can be made to fail and to be slow.
type spy struct {
	sluice.Store
	before func(charges []sluice.Charge) error // of each Take, or nil

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

// acquire takes a place that has to be free, or not.
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
			t.Errorf("of two places a third: %+v, %v, want %+v", d, err, want)
		}
		refused() // gives back nothing
		acquire(t, s, "a", false)
		first()
		first() // and not that of another
		third := acquire(t, s, "a", true)
		acquire(t, s, "a", false)
		second()
		third()
		if d, err := s.Peek(t.Context(), "a"); err != nil || d.Remaining != 2 {
			t.Errorf("when all are released: %+v, %v", d, err)
		}
	})
}

// A place is held for as long as its holder lives, and a place that nobody takes again is free after
// kernel.PermitLasts.
func TestSemaphoreHoldsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		release := acquire(t, semaphore(t, store, 1), "a", true)
		other := semaphore(t, store, 1)
		for range 100 {
			time.Sleep(kernel.PermitLasts / 3)
			acquire(t, other, "a", false)
		}
		store.fail(errors.New("unavailable")) // it does not come back before the place is free
		time.Sleep(kernel.PermitLasts)
		store.fail(nil)
		acquire(t, other, "a", true)()
		release()

		release = acquire(t, other, "a", true)
		store.fail(errors.New("unavailable")) // and now it does
		time.Sleep(kernel.PermitLasts * 2 / 3)
		store.fail(nil)
		time.Sleep(kernel.PermitLasts * 2 / 3)
		acquire(t, semaphore(t, store, 1), "a", false)
		release()
	})
}

// Whoever ends gives back all that it holds, and later that which is released anyway nothing more.
func TestHolderReleaseAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		h := sluice.NewHolder(store)
		plan := inFlight(t, 3)
		if err := h.ReleaseAll(t.Context()); err != nil || store.takes.Load() > 0 {
			t.Errorf("of nothing: %v, %d takes", err, store.takes.Load())
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
			t.Errorf("released again: %v, %d takes more", err, store.takes.Load()-takes)
		}
	})
}

// Whoever ends waits for what others are giving back, until its context ends.
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
				t.Errorf("%v after %v, want %v where a Take takes %v", err, time.Since(began), want, takes)
			}
		})
	}
}

// A place that is released while it is being taken again is free all the same.
func TestReleasedWhileTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		release := acquire(t, semaphore(t, store, 1), "a", true)
		store.delay.Store(int64(100 * time.Millisecond))
		time.Sleep(kernel.PermitLasts/5 + 50*time.Millisecond) // the Take is under way
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
		time.Sleep(kernel.PermitLasts/5 + 50*time.Millisecond) // the Take is under way
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
			t.Errorf("a Wait for what is taken ends with %v", err)
		}
		unavailable := errors.New("unavailable")
		store.fail(unavailable)
		if _, err := s.Wait(t.Context(), "a"); !errors.Is(err, unavailable) {
			t.Errorf("a Wait for a store that is unavailable ends with %v", err)
		}
		store.fail(nil)
		release()
	})
}

// Whoever leaves while the store is asked leaves no place behind, although it was taken.
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

// A release that fails is tried again, until the store is back.
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
			t.Errorf("%d takes when nothing is held and nothing is owed", n)
		}
		third := acquire(t, s, "a", true)
		store.fail(unavailable) // for longer than a place lasts: it is forgotten
		third()
		time.Sleep(time.Minute)
		store.takes.Store(0)
		time.Sleep(time.Minute)
		if n := store.takes.Load(); n > 0 {
			t.Errorf("%d takes for a place that is free by itself", n)
		}
	})
}

// lost is a store whose answers nobody hears whose context has ended.
type lost struct{ sluice.Store }

func (l lost) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := l.Store.Take(ctx, charges, receipts); err != nil {
		return err
	}
	return ctx.Err()
}
