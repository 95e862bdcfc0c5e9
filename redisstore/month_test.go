package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
)

// The edge of a month is that of the server's clock, whatever this machine's says. The key
// expires there, or an eighth of a month later if more than half is used.
func TestMonthOfTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.StartMovable(t)
	store := open(t, server.URL())
	// Months from tomorrow end at the server's next midnight.
	midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 40)
	p := plan(t, sluice.FixedWindow, fmt.Sprint("3/month from ", midnight.Day()))
	server.SetClock(time.Until(midnight) - time.Hour)
	ask := func(cost int64) (sluice.Receipt, sluice.Decision) {
		r := plantest.One(t, store, "k", p, cost)
		return r, p.Decide(cost, r)
	}
	expires := func(want time.Time) {
		t.Helper()
		if at := number(t, server, "PEXPIRETIME", server.Do("KEYS", "*")); at != want.UnixMilli() {
			t.Errorf("the key expires at %v, want %v", time.UnixMilli(at).UTC(), want)
		}
	}
	ask(1)
	expires(midnight)
	r, d := ask(2)
	if end := r.Now + d.RetryAfter.Microseconds(); !d.Allowed || end != midnight.UnixMicro() {
		t.Fatalf("%+v, want all of the month that ends at %v", d, midnight)
	}
	expires(midnight.Add(31 * 24 * time.Hour / 8))
	if _, d := ask(1); d.Allowed {
		t.Errorf("a fourth unit: %+v", d)
	}
	server.SetClock(time.Until(midnight) + time.Hour)
	// A store that remembers no refusal.
	store = open(t, server.URL())
	if _, d := ask(2); !d.Allowed || d.Remaining != 1 {
		t.Errorf("an hour into the next month: %+v", d)
	}
}
