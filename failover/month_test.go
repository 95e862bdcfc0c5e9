package failover_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// A share of a month begins anew with the next one, and what was used in the one before is not
// written back into it.
func TestShareOfAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble begins at 2000-01-01T00:00:00Z.
		time.Sleep(24*time.Hour - 10*time.Second)
		p := plan(t, "20/month from 2", sluice.FixedWindow)
		sv := newServer()
		s := failover.New(prompt{sv}, failover.Config{Instances: 2, Logger: quiet()})
		defer s.Close()
		cut(t, sv, s, refused)
		use := func(want int64) {
			t.Helper()
			passed := int64(0)
			for range 30 {
				if take(t, s, "k", p, sluice.Local).Fits {
					passed++
				}
			}
			if passed != want {
				t.Errorf("at %v: %d pass, want %d", time.Now().UTC(), passed, want)
			}
		}
		use(10)
		r := take(t, s, "k", p, sluice.Local)
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		if d := p.Decide(1, r); d.Allowed || r.Now+d.RetryAfter.Microseconds() != midnight.UnixMicro() {
			t.Errorf("once the share is used up: %+v", d)
		}
		time.Sleep(time.Until(midnight) - time.Microsecond)
		use(0)
		time.Sleep(time.Microsecond)
		for range 4 {
			take(t, s, "k", p, sluice.Local)
		}
		mend(t, sv, s)
		if n := sv.used(t, "k", p); n != 4 {
			t.Errorf("%d are written back into the new month, want 4", n)
		}
	})
}
