package failover_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// limiterOf returns a limiter of ten a minute over a store, which says what holds without it.
func limiterOf(t *testing.T, s *failover.Store, on sluice.OnError) *sluice.Limiter {
	t.Helper()
	l, err := sluice.NewLimiter(s, on.String(), sluice.Limit{Count: 10, Period: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	l.OnError = on
	return l
}

// A limiter says what holds while the store is away.
func TestLimiterOnError(t *testing.T) {
	for on, admitted := range map[sluice.OnError]int{sluice.Allow: 30, sluice.Deny: 0, sluice.Local: 5} {
		bubble(t, failover.Config{Instances: 2}, func(t *testing.T, sv *server, s *failover.Store) {
			l := limiterOf(t, s, on)
			if d, err := l.Take(t.Context(), "k", 1); !d.Allowed || d.Origin.Degraded() || err != nil {
				t.Errorf("%v, before: %+v, %v", on, d, err)
			}
			cut(t, sv, s, refused)
			n := 0
			for range 30 {
				d, err := l.Take(t.Context(), "other", 1)
				if err != nil || !d.Origin.Degraded() {
					t.Fatalf("%v: %+v, %v", on, d, err)
				}
				if d.Allowed {
					n++
				}
				if on == sluice.Deny && d != (sluice.Decision{RetryAfter: time.Second, Origin: sluice.ByOnError, Now: d.Now}) {
					t.Errorf("%+v", d)
				}
			}
			if n != admitted {
				t.Errorf("%v: %d admitted, want %d", on, n, admitted)
			}
		})
	}
}

// Who waits and is not to pass without the store waits for that, and asks now and then.
func TestWaitForTheStore(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		l := limiterOf(t, s, sluice.Deny)
		cut(t, sv, s, refused)
		begin, asked := time.Now(), s.Status().Local
		time.AfterFunc(time.Minute, func() { sv.set(nil) })
		if err := l.Wait(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < time.Minute || took > time.Minute+3*time.Second {
			t.Errorf("it has waited %v", took)
		}
		if n := s.Status().Local - asked; n < 30 || n > 63 {
			t.Errorf("it has asked %d times in a minute", n)
		}
		if d, err := l.Peek(t.Context(), "k"); d.Remaining != 9 || d.Origin.Degraded() || err != nil {
			t.Errorf("afterwards %+v, %v", d, err)
		}
	})
}
