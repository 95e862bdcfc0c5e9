package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
)

// Months of the calendar, asked for by many in one call, are decided as in memory, over edges
// and leap days and wherever the clock goes.
func TestMonthsOfOneCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one, many := memory.New(), redisstore.Timed(open(t, "unix://"+server.Socket))
	c := &crowd{Rand: rand.New(rand.NewPCG(9, 10)), lock: lockOf(t, sluice.Penalty{First: time.Hour})}
	for _, limit := range []string{"7/month", "400/month from 15", "70/month from 29", "70/month from 30", "100/month from 31", "300/month from 31"} {
		c.plans = append(c.plans, plan(t, sluice.FixedWindow, limit))
	}
	const day = int64(24 * time.Hour / time.Microsecond)
	now := time.Date(2095, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
	decided, refused := 0, 0
	for range steps(t) / 200 {
		all := c.ask()
		decided += len(all)
		refused += c.asOneByOne(t, one, many, now, all)
		switch now += c.Int64N(3 * day); c.IntN(20) {
		case 0:
			now -= c.Int64N(100 * day)
		case 1:
			now += c.Int64N(300 * day)
		case 2, 3, 4:
			_, _, end := c.plans[c.IntN(len(c.plans))].WindowAt(now)
			now = end - c.Int64N(2)
		}
	}
	if many.Joined < decided/3 || refused < decided/10 || refused > decided*9/10 {
		t.Errorf("of %d requests %d were asked for with others and %d refused: this tells little", decided, many.Joined, refused)
	}
}

// The edge of a month is that of the server's clock, whatever this machine's says. The key
// expires there, or an eighth of a month later if more than half is used.
func TestMonthOfTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.StartMovable(t)
	store := open(t, server.URL())
	// Months from tomorrow end at the server's next midnight.
	midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 40)
	p, err := sluice.NewPlan(sluice.Limit{Count: 3, MonthDay: midnight.Day(), Algorithm: sluice.FixedWindow})
	if err != nil {
		t.Fatal(err)
	}
	server.SetClock(time.Until(midnight) - time.Hour)
	ask := func(cost int64) (sluice.Receipt, sluice.Decision) {
		var r [1]sluice.Receipt
		if err := store.Take(t.Context(), []sluice.Charge{{Key: "k", Plan: p, Cost: cost}}, r[:]); err != nil {
			t.Fatal(err)
		}
		return r[0], p.Decide(cost, r[0])
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
