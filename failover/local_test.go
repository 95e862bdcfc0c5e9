package failover_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
)

// If Limiter.Wait is denied in an outage, it tries again every second or two until the store is available.
func TestWaitForTheStore(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		l, err := sluice.NewLimiter(s, "api", sluice.Limit{Count: 10, Period: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		l.OnError = sluice.Deny
		cut(t, sv, s, faultstore.Refused)
		begin, asked := time.Now(), s.Status().Local
		time.AfterFunc(time.Minute, func() { sv.Set(nil) })
		if err := l.Wait(t.Context(), "k", 1); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took < time.Minute || took > time.Minute+3*time.Second {
			t.Errorf("Wait has taken %v", took)
		}
		if n := s.Status().Local - asked; n < 30 || n > 63 {
			t.Errorf("Wait has tried %d times in a minute", n)
		}
	})
}

// A local allowance starts with the newest state, even if the answer with an older state arrives later.
func TestSeedOfTheNewest(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "100/day", sluice.FixedWindow)
		var delay atomic.Int64
		sv.Set(func(_ context.Context, c faultstore.Call) error {
			err := c.Take()
			time.Sleep(time.Duration(delay.Load()))
			return err
		})
		delay.Store(int64(20 * time.Millisecond))
		var wg sync.WaitGroup
		wg.Go(func() { take(t, s, "k", p, sluice.Local) })
		time.Sleep(10 * time.Millisecond)
		delay.Store(0)
		spend(t, s, "k", p, 99, sluice.Local)
		wg.Wait()
		cut(t, sv, s, faultstore.Refused)
		if n := admitted(t, s, 1, "k", p); n != 0 {
			t.Error("unit 101 is admitted")
		}
	})
}
