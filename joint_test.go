package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

// limiterOf returns a limiter named "api" with the limits that plantest.Limit parses from texts.
func limiterOf(t testing.TB, store sluice.Store, texts ...string) *sluice.Limiter {
	t.Helper()
	var limits []sluice.Limit
	for _, text := range texts {
		limits = append(limits, plantest.Limit(t, text))
	}
	l, err := sluice.NewLimiter(store, "api", limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ExampleNewLimiter_several() {
	fast := sluice.Limit{Count: 2, Period: time.Second}
	daily := sluice.Limit{Count: 3, Period: 24 * time.Hour}
	limiter, _ := sluice.NewLimiter(memory.New(), "api", fast, daily)
	for range 3 {
		d, err := limiter.Take(context.Background(), "alice", 1)
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	d, _ := limiter.Peek(context.Background(), "alice")
	fmt.Println("the denied request was not charged, and", d.Remaining, "units remain")
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
	// the denied request was not charged, and 0 units remain
}

// Several limits apply together: the decision of each limit equals that of the model, which counts in rational numbers;
// nothing is charged unless all limits allow the request; and the combined decision is as restrictive as the most
// restrictive limit.
func TestJointLimits(t *testing.T) {
	for seed := range uint64(4) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, seed))
			model := new(storetest.Model)
			l := limiterOf(t, memory.New(), "5/second", "20/10s as sliding_window_log", "30/minute as fixed_window", "4/2s burst 6 as leaky_bucket")
			each := make([]sluice.Decision, 4)
			refused := 0
			for step := range 3000 {
				key, cost := fmt.Sprint(rng.IntN(2)), 1+rng.Int64N(4)
				got, err := l.TakeEach(t.Context(), key, cost, each)
				if err != nil {
					t.Fatal(err)
				}
				var charges []sluice.Charge
				for _, p := range l.Plans() {
					charges = append(charges, sluice.Charge{Key: key, Plan: p, Cost: cost})
				}
				receipts := plantest.Take(t, model, charges...)
				for i, p := range l.Plans() {
					want := p.Decide(cost, receipts[i])
					if !sluice.Admitted(charges, receipts) {
						want.Delay = 0
					}
					if each[i] != want {
						t.Fatalf("seed %d, step %d, %v: %+v, want %+v", seed, step, p.Limit, each[i], want)
					}
				}
				checkTightest(t, got, each)
				if !got.Allowed {
					refused++
					checkPromise(t, l, key, cost, got)
				}
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(400*time.Millisecond)))
			}
			if refused < 500 || refused > 2500 {
				t.Errorf("premise: %d of 3000 were denied", refused)
			}
		})
	}
}

// checkTightest checks that each field of the combined decision d is that of the most restrictive limit.
func checkTightest(t *testing.T, d sluice.Decision, each []sluice.Decision) {
	t.Helper()
	for _, one := range each {
		if d.Allowed && !one.Allowed || d.Remaining > one.Remaining || d.RetryAfter < one.RetryAfter || d.ResetAfter < one.ResetAfter || d.Delay < one.Delay {
			t.Fatalf("%+v is less restrictive than %+v", d, one)
		}
	}
	for what, any := range map[string]func(sluice.Decision) bool{
		"Allowed":    func(o sluice.Decision) bool { return d.Allowed || !o.Allowed },
		"Remaining":  func(o sluice.Decision) bool { return d.Remaining == o.Remaining },
		"RetryAfter": func(o sluice.Decision) bool { return d.RetryAfter == o.RetryAfter },
		"ResetAfter": func(o sluice.Decision) bool { return d.ResetAfter == o.ResetAfter },
		"Delay":      func(o sluice.Decision) bool { return d.Delay == o.Delay },
	} {
		found := false
		for _, one := range each {
			found = found || any(one)
		}
		if !found {
			t.Fatalf("%s of %+v matches no limit: %+v", what, d, each)
		}
	}
}

// checkPromise checks with Peek that the remaining units are those of the denial d, and fewer than its cost.
func checkPromise(t *testing.T, l *sluice.Limiter, key string, cost int64, d sluice.Decision) {
	t.Helper()
	now, err := l.Peek(t.Context(), key)
	if err != nil || now.Remaining >= cost || now.Remaining != d.Remaining {
		t.Fatalf("after a denial of cost %d, Peek returned %+v, %v", cost, now, err)
	}
}

// Wait with several limits waits exactly as long as necessary.
func TestJointWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, memory.New(), "2/second", "3/minute as fixed_window")
		begin := time.Now()
		for i, want := range []time.Duration{0, 0, 500 * time.Millisecond, time.Minute, time.Minute, time.Minute + 500*time.Millisecond, 2 * time.Minute} {
			if err := l.Wait(t.Context(), "a", 1); err != nil || time.Since(begin) != want {
				t.Fatalf("unit %d after %v, want %v: %v", i+1, time.Since(begin), want, err)
			}
		}
		if err := l.Wait(t.Context(), "a", 3); !errors.Is(err, sluice.ErrNever) {
			t.Errorf("cost 3 with a burst of 2: %v, want ErrNever", err)
		}
		if err := l.Reset(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if d, err := l.Peek(t.Context(), "a"); err != nil || d.Remaining != 2 || d.ResetAfter != 0 {
			t.Errorf("after the reset: %+v, %v", d, err)
		}
	})
}

// A caller that leaves the queue gives up only its turn. If the turn comes after the deadline of the caller, the caller
// also refunds the other limits. The next caller gets the turn.
func TestJointQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, memory.New(), "1/second burst 3 as leaky_bucket", "10/hour as fixed_window")
		used := func() string {
			each := make([]sluice.Decision, 2)
			// A cost above the size of the queue never fits, so this call charges nothing.
			if _, err := l.TakeEach(t.Context(), "a", 4, each); err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(3-each[0].Remaining, 10-each[1].Remaining)
		}
		if err := l.Wait(t.Context(), "a", 1); err != nil || used() != "1 1" {
			t.Fatalf("first: %v, used %s", err, used())
		}
		near, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		if err := l.Wait(near, "a", 1); !errors.Is(err, sluice.ErrTooLong) || used() != "2 1" {
			t.Errorf("deadline before the turn: %v, used %s", err, used())
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*time.Millisecond, leave)
		if err := l.Wait(ctx, "a", 1); !errors.Is(err, context.Canceled) || used() != "2 2" {
			t.Errorf("canceled while waiting: %v, used %s", err, used())
		}
		if err := l.Wait(t.Context(), "a", 1); err != nil || used() != "1 3" {
			t.Errorf("next caller: %v, used %s", err, used())
		}
	})
}

// Mistakes of the caller match ErrUsage. Failures of the store and ErrNever do not.
func TestUsage(t *testing.T) {
	second, minute := sluice.Limit{Count: 10, Period: time.Second}, sluice.Limit{Count: 600, Period: time.Minute}
	queue := sluice.Limit{Count: 1, Period: time.Second, Algorithm: sluice.LeakyBucket}
	slow := sluice.Limit{Count: 1, Period: time.Hour, Algorithm: sluice.LeakyBucket}
	made := func(limits ...sluice.Limit) error {
		_, err := sluice.NewLimiter(memory.New(), "", limits...)
		return err
	}
	l := limiterOf(t, memory.New(), "1/second", "5/day")
	taken := func(_ sluice.Decision, err error) error { return err }
	ctx := t.Context()
	_, noStore := sluice.NewLimiter(nil, "", second)
	duplicate := []sluice.Charge{{Key: "a", Plan: l.Plan()}, {Key: "a", Plan: l.Plan()}}
	for want, err := range map[string]error{
		"needs a store":              noStore,
		"needs a limit":              made(),
		"leave out the one that":     made(second, minute),
		"in one queue only":          made(second, queue, slow),
		"the count is 0":             made(sluice.Limit{}),
		"the period is 0s":           taken(l.TakeLimit(ctx, "a", 1, sluice.Limit{Count: 1})),
		"Take of 0 units":            taken(l.TakeLimit(ctx, "a", 0, second)),
		"Take of -1 units":           taken(l.Take(ctx, "a", -1)),
		"TakeEach by 2 limits":       taken(l.TakeEach(ctx, "a", 1, nil)),
		"Take of -2 units":           taken(l.TakeEach(ctx, "a", -2, make([]sluice.Decision, 2))),
		"Refund of 0 units":          taken(l.Refund(ctx, "a", 0)),
		"LeaveQueue with 0 units":    l.LeaveQueue("a", 0, sluice.Decision{}),
		"Take of -3 units":           l.Wait(ctx, "a", -3),
		"Refund of -4 units":         taken(l.Refund(ctx, "a", -4)),
		"memory.New()":               noStore,
		"NewSemaphore needs a store": semaphoreError(nil, 1),
		"0 permits in flight":        semaphoreError(newSpy(), 0),
		"65537 permits in flight":    semaphoreError(newSpy(), 1<<16+1),
		"add up their costs":         sluice.CheckCharges(duplicate, make([]sluice.Receipt, 2)),
		"room for 1 receipts":        sluice.CheckCharges(duplicate, make([]sluice.Receipt, 1)),
		"charge 0 has no plan":       sluice.CheckCharges(make([]sluice.Charge, 1), make([]sluice.Receipt, 1)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%v, want ErrUsage with %q", err, want)
		}
	}
	if err := sluice.CheckCharges(duplicate, make([]sluice.Receipt, 2)); !errors.Is(err, sluice.ErrDuplicateCharge) {
		t.Errorf("%v, want ErrDuplicateCharge", err)
	}
	wrong := limiterOf(t, memory.New(), "3/day")
	wrong.Lock = l.Plan() // not a plan of a lock
	if d, err := wrong.Take(ctx, "a", 1); !errors.Is(err, sluice.ErrUsage) || d != (sluice.Decision{}) {
		t.Errorf("a limit as a lock: %+v, %v", d, err)
	}
	unavailable := errors.New("the store is unavailable")
	down := limiterOf(t, &spy{err: unavailable}, "1/second", "5/day")
	for what, err := range map[string]error{
		"Take": taken(down.Take(ctx, "a", 1)), "TakeLimit": taken(down.TakeLimit(ctx, "a", 1, second)), "Wait": down.Wait(ctx, "a", 1),
		"Peek": taken(down.Peek(ctx, "a")), "Reset": down.Reset(ctx, "a"),
	} {
		if !errors.Is(err, unavailable) || errors.Is(err, sluice.ErrUsage) {
			t.Errorf("%s: %v, want the error of the store", what, err)
		}
	}
	if err := l.Wait(ctx, "a", 6); !errors.Is(err, sluice.ErrNever) || errors.Is(err, sluice.ErrUsage) {
		t.Errorf("cost above a limit: %v, want ErrNever", err)
	}
	if d, err := l.Peek(ctx, "a"); err != nil || d.Remaining != 1 {
		t.Errorf("failed calls were charged: %+v, %v", d, err)
	}
}

func semaphoreError(store sluice.Store, places int64) error {
	_, err := sluice.NewSemaphore(store, "", places)
	return err
}

// TakeLimit counts under the limiter's name, separately for each limit.
func TestTakeLimit(t *testing.T) {
	store := memory.New()
	l := limiterOf(t, store, "3/day")
	l.OnError = sluice.Deny
	take := func(limit sluice.Limit) int64 {
		t.Helper()
		d, err := l.TakeLimit(t.Context(), "alice", 1, limit)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	pro := sluice.Limit{Count: 50, Period: day}
	if a, b := take(pro), take(pro); a != 49 || b != 48 {
		t.Errorf("%d and %d remain of 50", a, b)
	}
	same, err := l.With(pro)
	if err != nil || same.OnError != sluice.Deny || same.Name() != "api" {
		t.Errorf("%+v, %v", same, err)
	}
	if again, _ := l.With(pro); again != same {
		t.Error("With compiled the same limit twice")
	}
	// More limits than the limiter caches.
	for i := range int64(1500) {
		if left := take(sluice.Limit{Count: 1000 + i, Period: time.Hour, Algorithm: sluice.FixedWindow}); left < 0 || i == 0 && left != 999 {
			t.Fatalf("%d remain of %d", left, 1000+i)
		}
	}
	if d, err := l.Peek(t.Context(), "alice"); err != nil || d.Remaining != 3 {
		t.Errorf("the limiter's own limit: %+v, %v", d, err)
	}
	if left := take(pro); left != 47 {
		t.Errorf("%d remain of 50", left)
	}
}

func TestRetryAfterSeconds(t *testing.T) {
	for wait, want := range map[time.Duration]int64{
		0: 0, sluice.Never: 0, time.Nanosecond: 1, time.Microsecond: 1, time.Second: 1, time.Second + time.Microsecond: 2, time.Hour: 3600,
		sluice.Never - 1: 9_223_372_037,
	} {
		got, ok := sluice.Decision{RetryAfter: wait}.RetryAfterSeconds()
		if got != want || ok != (want > 0) {
			t.Errorf("%v: %d, %t, want %d", wait, got, ok, want)
		}
	}
}

func TestAllocations(t *testing.T) {
	joint, single := limiterOf(t, memory.New(), "1/hour", "5/day"), limiterOf(t, memory.New(), "1/hour")
	each, limit, allowed := make([]sluice.Decision, 2), sluice.Limit{Count: 7, Period: time.Hour}, 0
	for what, take := range map[string]func() sluice.Decision{
		"Take":       func() sluice.Decision { d, _ := single.Take(t.Context(), "alice", 1); return d },
		"joint Take": func() sluice.Decision { d, _ := joint.Take(t.Context(), "alice", 1); return d },
		"TakeEach":   func() sluice.Decision { d, _ := joint.TakeEach(t.Context(), "alice", 1, each); return d },
		"TakeLimit":  func() sluice.Decision { d, _ := joint.TakeLimit(t.Context(), "alice", 1, limit); return d },
	} {
		n := math.Inf(1)
		for range 100 { // the minimum, because a sync.Pool may drop its items
			n = min(n, testing.AllocsPerRun(1, func() {
				if take().Allowed {
					allowed++
				}
			}))
		}
		if n > 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
	if allowed != 9 {
		t.Errorf("premise: %d were allowed, want 1 by each limiter and 7 by TakeLimit", allowed)
	}
}
