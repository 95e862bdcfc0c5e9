package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func limiter(t *testing.T, store sluice.Store, name string, l sluice.Limit) *sluice.Limiter {
	t.Helper()
	limiter, err := sluice.NewLimiter(store, name, l)
	if err != nil {
		t.Fatal(err)
	}
	return limiter
}

func ExampleLimiter() {
	limit, _ := sluice.ParseLimit("2/day")
	limiter, _ := sluice.NewLimiter(memory.New(), "api", limit)
	for range 3 {
		d, err := limiter.Take(context.Background(), "alice", 1)
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(), "api", sluice.Limit{Count: 10, Period: time.Second, Burst: 4})
		expect := func(what string, d sluice.Decision, err error, want sluice.Decision) {
			t.Helper()
			want.Now = time.Now().UnixMicro()
			if err != nil || d != want {
				t.Errorf("%s: %+v, %v, want %+v", what, d, err, want)
			}
		}
		const ms = time.Millisecond
		d, err := l.Peek(t.Context(), "alice")
		expect("peek at nothing", d, err, sluice.Decision{Allowed: true, Remaining: 4})
		d, err = l.Take(t.Context(), "alice", 3)
		expect("take 3", d, err, sluice.Decision{Allowed: true, Remaining: 1, ResetAfter: 300 * ms})
		d, err = l.Take(t.Context(), "alice", 3)
		expect("take 3 more", d, err, sluice.Decision{Remaining: 1, RetryAfter: 200 * ms, ResetAfter: 300 * ms})
		d, err = l.Take(t.Context(), "alice", 5)
		expect("take 5 of 4", d, err, sluice.Decision{Remaining: 1, RetryAfter: sluice.Never, ResetAfter: 300 * ms})
		d, err = l.Take(t.Context(), "bob", 4)
		expect("take 4 for another", d, err, sluice.Decision{Allowed: true, RetryAfter: 100 * ms, ResetAfter: 400 * ms})
		time.Sleep(200*ms - time.Microsecond)
		d, err = l.Take(t.Context(), "alice", 3)
		expect("take 3 too early", d, err, sluice.Decision{Remaining: 2, RetryAfter: time.Microsecond, ResetAfter: 100*ms + time.Microsecond})
		time.Sleep(time.Microsecond)
		d, err = l.Take(t.Context(), "alice", 3)
		expect("take 3 in time", d, err, sluice.Decision{Allowed: true, RetryAfter: 100 * ms, ResetAfter: 400 * ms})
		d, err = l.Refund(t.Context(), "alice", 2)
		expect("give back 2", d, err, sluice.Decision{Allowed: true, Remaining: 2, ResetAfter: 200 * ms})
		d, err = l.Refund(t.Context(), "alice", 9)
		expect("give back 9", d, err, sluice.Decision{Allowed: true, Remaining: 4})
		if err := l.Reset(t.Context(), "bob"); err != nil {
			t.Error(err)
		}
		d, err = l.Peek(t.Context(), "bob")
		expect("peek after the reset", d, err, sluice.Decision{Allowed: true, Remaining: 4})
	})
}

func TestLimiterBadArguments(t *testing.T) {
	if _, err := sluice.NewLimiter(nil, "api", sluice.Limit{Count: 1, Period: time.Second}); err == nil || !strings.Contains(err.Error(), "memory.New()") {
		t.Errorf("no store: %v", err)
	}
	if _, err := sluice.NewLimiter(memory.New(), "api", sluice.Limit{}); err == nil {
		t.Error("no limit: no error")
	}
	l := limiter(t, memory.New(), "", sluice.Limit{Count: 5, Period: time.Hour, Algorithm: sluice.FixedWindow})
	for _, cost := range []int64{0, -1, sluice.All} {
		if d, err := l.Take(t.Context(), "a", cost); err == nil || d != (sluice.Decision{}) {
			t.Errorf("Take of %d: %+v, %v", cost, d, err)
		}
		if d, err := l.Refund(t.Context(), "a", cost); err == nil || d != (sluice.Decision{}) {
			t.Errorf("Refund of %d: %+v, %v", cost, d, err)
		}
		if err := l.Wait(t.Context(), "a", cost); err == nil {
			t.Errorf("Wait for %d: no error", cost)
		}
	}
	if d, err := l.Take(t.Context(), "a", 5); err != nil || !d.Allowed {
		t.Errorf("the calls that failed have used something up: %+v, %v", d, err)
	}
}

// TestLimiterKeys: names and keys of any shape are kept apart, and equal ones are shared.
func TestLimiterKeys(t *testing.T) {
	store := memory.New()
	limit := sluice.Limit{Count: 1000, Period: 10_000 * day, Algorithm: sluice.FixedWindow}
	words := []string{"", "a", "b", "a/b", "/", "%2F", "a%2Fb", "{a}", "\x00", "\xff", "é", strings.Repeat("x", 128), strings.Repeat("x", 129), "#"}
	cost := int64(0)
	for _, name := range words {
		l := limiter(t, store, name, limit)
		for _, key := range words {
			cost++
			if _, err := l.Take(t.Context(), key, cost); err != nil {
				t.Fatal(err)
			}
		}
	}
	cost = 0
	for _, name := range words {
		l := limiter(t, store, name, limit)
		for _, key := range words {
			cost++
			if d, err := l.Peek(t.Context(), key); err != nil || 1000-d.Remaining != cost {
				t.Errorf("limiter %.20q, key %.20q: %d are used, want %d, %v", name, key, 1000-d.Remaining, cost, err)
			}
		}
	}
}

// seen is a store that notes the keys that it is asked for.
type seen struct {
	sluice.Store
	keys []string
}

func (s *seen) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.keys = append(s.keys, strings.Clone(charges[0].Key))
	return s.Store.Take(ctx, charges, receipts)
}

// TestLimiterKeyForm: a store gets keys that people can read and that mean nothing to it.
func TestLimiterKeyForm(t *testing.T) {
	store := &seen{Store: memory.New()}
	limit := sluice.Limit{Count: 1, Period: time.Hour}
	for _, pair := range [][3]string{
		{"", "alice", "alice"}, {"api", "alice", "api!alice"}, {"", "a/b", "!a%2Fb"}, {"{x}", "{y}", "%7Bx%7D!%7By%7D"}, {"api", "", "api!"}, {"", "", ""},
	} {
		if _, err := limiter(t, store, pair[0], limit).Peek(t.Context(), pair[1]); err != nil {
			t.Fatal(err)
		}
		if got := store.keys[len(store.keys)-1]; got != pair[2] {
			t.Errorf("limiter %q, key %q: the store was asked for %q, want %q", pair[0], pair[1], got, pair[2])
		}
	}
}

// TestLimiterConcurrent: limiters reuse the memory in which they build keys.
func TestLimiterConcurrent(t *testing.T) {
	l := limiter(t, memory.New(), "a name", sluice.Limit{Count: 100, Period: 10_000 * day})
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() {
			for i := range 160 {
				if _, err := l.Take(t.Context(), fmt.Sprint("key ", (n+i)%16), 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for n := range 16 {
		if d, err := l.Peek(t.Context(), fmt.Sprint("key ", n)); err != nil || d.Remaining != 0 {
			t.Errorf("key %d: %+v, %v: 160 were asked for, and 100 are the limit", n, d, err)
		}
	}
}

func TestLimiterAllocations(t *testing.T) {
	for _, name := range []string{"", "api"} {
		l := limiter(t, memory.New(), name, sluice.Limit{Count: 1, Period: time.Hour})
		allowed := 0
		if n := testing.AllocsPerRun(100, func() {
			if d, _ := l.Take(t.Context(), "alice", 1); d.Allowed {
				allowed++
			}
		}); n >= 1 { // a pool may lose what it holds at a collection
			t.Errorf("a take by limiter %q allocates %v times", name, n)
		}
		if allowed != 1 {
			t.Errorf("premise: %d takes were allowed, want 1", allowed)
		}
	}
}

// TestWait: waits are as long as they have to be, for all algorithms.
func TestWait(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := sluice.Limit{Count: 5, Period: time.Second, Algorithm: a}
				l := limiter(t, memory.New(), "api", limit)
				begin := time.Now()
				for n := range 11 {
					if err := l.Wait(t.Context(), "alice", 1); err != nil {
						t.Fatal(err)
					}
					// Virtual time begins at the edge of a second.
					want := map[sluice.Algorithm]time.Duration{
						sluice.TokenBucket:           time.Duration(max(0, n-4)) * 200 * time.Millisecond,
						sluice.GCRA:                  time.Duration(max(0, n-4)) * 200 * time.Millisecond,
						sluice.LeakyBucket:           time.Duration(n) * 200 * time.Millisecond,
						sluice.FixedWindow:           time.Duration(n/5) * time.Second,
						sluice.SlidingWindowLog:      logTime(begin, n),
						sluice.SlidingWindowLogExact: time.Duration(n/5) * time.Second,
						sluice.SlidingWindowCounter:  counterTime(n),
					}[a]
					if got := time.Since(begin); got != want {
						t.Fatalf("unit %d after %v, want %v", n+1, got, want)
					}
				}
			})
		})
	}
}

// logTime is when unit n of 5 a second passes a sliding window log: 5 at once, and 5 more
// where a part of 31 µs begins, a second or more after the end of that of the 5 before.
func logTime(begin time.Time, n int) time.Duration {
	const part = 31
	now := begin.UnixMicro()
	for range n / 5 {
		end := now - now%part + part - 1
		now = end + 1_000_000
		now += part - 1 - (now+part-1)%part
	}
	return time.Duration(now-begin.UnixMicro()) * time.Microsecond
}

// counterTime is when unit n of 5 a second passes a sliding window counter: 5 at once,
// then in the next second one whenever the weight of these 5 has sunk by one.
func counterTime(n int) time.Duration {
	switch {
	case n < 5:
		return 0
	case n < 10:
		return time.Second + time.Duration(n-4)*200*time.Millisecond
	}
	// The fifth of them passes where the next second begins, whose previous has the four
	// before: the sum of them and it is 5.
	return 2*time.Second + 250*time.Millisecond
}

func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(), "", sluice.Limit{Count: 1, Period: time.Minute, Burst: 3})
		if err := l.Wait(t.Context(), "a", 4); !errors.Is(err, sluice.ErrNever) {
			t.Errorf("4 of 3: %v, want ErrNever", err)
		}
		if err := l.Wait(t.Context(), "a", 3); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Microsecond)
		defer cancel()
		if err := l.Wait(ctx, "a", 1); !errors.Is(err, sluice.ErrTooLong) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline that is too near: %v, want ErrTooLong", err)
		}
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("gave up after %v, not at once", waited)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if err := l.Wait(ctx, "a", 1); !errors.Is(err, context.Canceled) || time.Since(begin) != time.Second {
			t.Errorf("cancelled: %v after %v", err, time.Since(begin))
		}
		if err := l.Wait(ctx, "a", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		if d, _ := l.Peek(t.Context(), "a"); d.ResetAfter != 3*time.Minute-time.Second {
			t.Errorf("waiting in vain has used something up: %+v", d)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, "a", 1); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("a deadline that is far enough: %v after %v", err, time.Since(begin))
		}
	})
}

// TestWaitInQueue: who leaves a leaky bucket's queue gives back the place.
func TestWaitInQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter(t, memory.New(), "", sluice.Limit{Count: 1, Period: time.Second, Burst: 3, Algorithm: sluice.LeakyBucket})
		begin := time.Now()
		ctx, leave := context.WithCancel(t.Context())
		near, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := l.Wait(t.Context(), "a", 1); err != nil || time.Since(begin) != 0 {
			t.Errorf("first: %v after %v", err, time.Since(begin))
		}
		if d, err := l.Take(t.Context(), "a", 1); err != nil || d.Delay != time.Second {
			t.Errorf("second: %+v, %v", d, err)
		}
		if err := l.Wait(near, "a", 1); !errors.Is(err, sluice.ErrTooLong) || time.Since(begin) != 0 {
			t.Errorf("a deadline before its turn: %v after %v", err, time.Since(begin))
		}
		var group sync.WaitGroup
		group.Go(func() {
			if err := l.Wait(ctx, "a", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("third, who leaves: %v", err)
			}
		})
		synctest.Wait()
		if d, _ := l.Peek(t.Context(), "a"); d.Remaining != 0 {
			t.Errorf("premise: the queue is not full: %+v", d)
		}
		leave()
		group.Wait()
		if err := l.Wait(t.Context(), "a", 1); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("who takes that place: %v after %v, want 2s", err, time.Since(begin))
		}
	})
}

// broken is a store that does not answer.
type broken struct{ err error }

func (b broken) Take(context.Context, []sluice.Charge, []sluice.Receipt) error { return b.err }

func TestLimiterStoreError(t *testing.T) {
	down := errors.New("the store is down")
	l := limiter(t, broken{down}, "api", sluice.Limit{Count: 1, Period: time.Second})
	if d, err := l.Take(t.Context(), "a", 1); !errors.Is(err, down) || d != (sluice.Decision{}) {
		t.Errorf("Take: %+v, %v", d, err)
	}
	if d, err := l.Peek(t.Context(), "a"); !errors.Is(err, down) || d != (sluice.Decision{}) {
		t.Errorf("Peek: %+v, %v", d, err)
	}
	if err := l.Wait(t.Context(), "a", 1); !errors.Is(err, down) {
		t.Errorf("Wait: %v", err)
	}
	if err := l.Reset(t.Context(), "a"); !errors.Is(err, down) {
		t.Errorf("Reset: %v", err)
	}
}
