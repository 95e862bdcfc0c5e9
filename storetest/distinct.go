package storetest

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// testValuesEnd checks that a value counts for a period after its last use, and that a denial has the exact time at
// which the least recently used value expires.
func testValuesEnd(t *testing.T, store TimedStore) {
	const start, hour = int64(1_700_000_000_123_457), int64(3600e6)
	take := func(values int64, now int64, number uint64, cost int64) (sluice.Receipt, sluice.Decision) {
		t.Helper()
		c, r := sluice.Charge{Key: t.Name(), Plan: distinct(t, values, time.Hour), Permit: number, Cost: cost}, spoilt(1)
		if err := store.TakeAt(t.Context(), now, []sluice.Charge{c}, r); err != nil {
			t.Fatal(err)
		}
		return r[0], c.Plan.Decide(cost, r[0])
	}
	for i, step := range []struct {
		values, after int64
		number        uint64
		cost          int64
		fits          bool
		used          int64
		newest, room  int64 // the last use, and the time at which a new value fits, after the start
		before        int64 // when the value would have expired, after the start; 0 if the value was not held
	}{
		{2, 0, 1, 0, true, 0, 0, 0, 0},
		{2, 0, 1, 1, true, 1, 0, hour, 0},
		{2, 10, 2, 1, true, 2, 10, hour, 0},
		{2, 20, 3, 1, false, 2, 10, hour, 0},
		{2, 30, 1, 1, true, 2, 30, hour + 10, hour}, // value 1 again: value 2 is now the least recently used
		{2, 40, 3, 1, false, 2, 30, hour + 10, 0},
		{2, 40, 2, 0, true, 2, 30, hour + 10, hour + 10},
		{2, hour + 9, 3, 1, false, 2, 30, hour + 10, 0},
		{2, hour + 10, 3, 1, true, 2, hour + 10, hour + 30, 0},
		{3, hour + 11, 4, 1, true, 3, hour + 11, hour + 30, 0},    // a higher limit
		{1, hour + 12, 5, 1, false, 3, hour + 11, 2*hour + 11, 0}, // a lower limit: all values have to expire
		{1, hour + 12, 4, 1, true, 3, hour + 12, 2*hour + 12, 2*hour + 11},
		{2, hour + 12, 5, 1, false, 3, hour + 12, 2*hour + 10, 0},
		{2, hour + 29, 1, -1, true, 2, hour + 12, 2*hour + 10, hour + 30},
		{2, hour + 29, 1, -1, true, 2, hour + 12, 2*hour + 10, 0},
		{2, 2*hour + 12, 9, 0, true, 0, 0, 0, 0},
	} {
		want := sluice.Receipt{Receipt: kernel.Receipt{Now: start + step.after, Fits: step.fits, Used: step.used}}
		if step.used > 0 {
			want.Tick, want.Wait = start+step.newest, start+step.room
		}
		if step.before > 0 {
			want.Prev = start + step.before
		}
		r, d := take(step.values, want.Now, step.number, step.cost)
		if r.Origin = 0; r != want {
			t.Fatalf("step %d:\n got %+v\nwant %+v", i+1, r, want)
		}
		wait, reset := int64(0), int64(0)
		if step.used >= step.values {
			wait = step.room - step.after
		}
		if step.used > 0 {
			reset = step.newest + hour - step.after
		}
		if d.RetryAfter.Microseconds() != wait || d.ResetAfter.Microseconds() != reset || d.Remaining != max(0, step.values-step.used) {
			t.Fatalf("step %d: %+v, want a wait of %d and a reset after %d", i+1, d, wait, reset)
		}
	}
	if r, d := take(2, start, 1, 2); r.Fits || d.RetryAfter != sluice.Never {
		t.Errorf("a cost of two values: %+v, %+v", r, d)
	}
}
