package sluice_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

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
		l := limiterOf(t, memory.New(), "10/second burst 4")
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

// TestLimiterKeyForm checks that the store gets readable keys, in which characters that have a meaning are escaped.
func TestLimiterKeyForm(t *testing.T) {
	store := newSpy()
	limit := sluice.Limit{Count: 1, Period: time.Hour}
	for _, pair := range [][3]string{
		{"", "alice", "alice"}, {"api", "alice", "api!alice"}, {"", "a/b", "!a%2Fb"}, {"{x}", "{y}", "%7Bx%7D!%7By%7D"}, {"api", "", "api!"}, {"", "", ""},
	} {
		l, err := sluice.NewLimiter(store, pair[0], limit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Peek(t.Context(), pair[1]); err != nil {
			t.Fatal(err)
		}
		if got := store.last[0].Key; got != pair[2] {
			t.Errorf("limiter %q, key %q: the store was asked for %q, want %q", pair[0], pair[1], got, pair[2])
		}
	}
}

// TestLimiterConcurrent checks that concurrent calls do not mix up their keys: limiters reuse the buffers in which they
// build keys.
func TestLimiterConcurrent(t *testing.T) {
	l := limiterOf(t, memory.New(), "100/10000d")
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
			t.Errorf("key %d: %+v, %v: 160 were requested, and the limit is 100", n, d, err)
		}
	}
}

// TestWait checks that Wait waits exactly as long as the model requires, for all algorithms.
func TestWait(t *testing.T) {
	for _, a := range sluice.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, model := limiterOf(t, memory.New(), "5/second as "+a.String()), new(storetest.Model)
				for n := range 11 {
					c, until := sluice.Charge{Key: "alice", Plan: l.Plan(), Cost: 1}, time.Now()
					for {
						d := model.Decide(c, plantest.TakeAt(t, model, until.UnixMicro(), c)[0])
						if until = until.Add(d.RetryAfter + d.Delay); d.Allowed {
							until = until.Add(-d.RetryAfter) // RetryAfter applies to the next unit
							break
						}
					}
					if err := l.Wait(t.Context(), "alice", 1); err != nil || time.Until(until) != 0 {
						t.Fatalf("unit %d comes %v after the model's, %v", n+1, time.Since(until), err)
					}
				}
			})
		})
	}
}

func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiterOf(t, memory.New(), "1/minute burst 3")
		if err := l.Wait(t.Context(), "a", 4); !errors.Is(err, sluice.ErrNever) {
			t.Errorf("cost 4 with a burst of 3: %v, want ErrNever", err)
		}
		if err := l.Wait(t.Context(), "a", 3); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-time.Microsecond)
		defer cancel()
		if err := l.Wait(ctx, "a", 1); !errors.Is(err, sluice.ErrTooLong) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a deadline that is too early: %v, want ErrTooLong", err)
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
			t.Errorf("failed waits were charged: %+v", d)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.Wait(ctx, "a", 1); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("a deadline that is late enough: %v after %v", err, time.Since(begin))
		}
	})
}

func TestAppendKeyPart(t *testing.T) {
	for _, line := range texts(t, "testdata/keys.txt") {
		if got := string(sluice.AppendKeyPart([]byte("before/"), line[0])); got != "before/"+line[1] {
			t.Errorf("%q became %q, want %q", line[0], got, "before/"+line[1])
		}
	}
	longest, accents := strings.Repeat("x", sluice.MaxKeyPart), strings.Repeat("é", 1000)
	hashed := func(s string) string { return fmt.Sprintf("#%x", sha256.Sum256([]byte(s)))[:33] }
	for value, want := range map[string]string{
		longest: longest, longest + "x": hashed(longest + "x"), accents: hashed(accents), strings.Repeat("/", 128): strings.Repeat("%2F", 128),
	} {
		if got := string(sluice.AppendKeyPart(nil, value)); got != want {
			t.Errorf("%.40q became %q, want %q", value, got, want)
		}
	}
}

// FuzzAppendKeyPart checks that short values can be decoded, that different values have different texts, and that texts
// contain no characters with a meaning in keys.
func FuzzAppendKeyPart(f *testing.F) {
	for _, s := range []string{"", "a/b", "{a}", "%2F", "a%", "\x00\xff", "#0123", "é!", strings.Repeat("{", 128), strings.Repeat("a", 129)} {
		f.Add(s, s+"a")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		one, two := string(sluice.AppendKeyPart(nil, a)), string(sluice.AppendKeyPart(nil, b))
		if (one == two) != (a == b) {
			t.Fatalf("%q and %q became %q and %q", a, b, one, two)
		}
		for _, c := range []byte(one) {
			if c <= ' ' || c > '~' || strings.IndexByte("/{}!*?[]\"'\\", c) >= 0 {
				t.Fatalf("%q became %q, which contains a %q", a, one, c)
			}
		}
		if len(a) > sluice.MaxKeyPart {
			if len(one) != 33 || one[0] != '#' {
				t.Fatalf("the long value %q became %q", a, one)
			}
			return
		}
		if back, err := url.PathUnescape(one); err != nil || back != a || strings.HasPrefix(one, "#") {
			t.Fatalf("%q became %q, which decodes to %q, %v", a, one, back, err)
		}
	})
}
