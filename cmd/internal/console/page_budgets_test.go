package console

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/telemetry"
)

// The page predicts when a limit will be exhausted only if the pace is known and the limit is not renewed earlier.
func TestExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		full := time.Now().Add(10 * time.Hour)
		const lasts = 20 * time.Minute
		for name, test := range map[string]struct {
			limit string
			left  int64
			spent uint64 // in 20 minutes
			far   uint64 // maximum error of the count
			by    string // the limit's algorithm
			want  time.Duration
			least bool
		}{
			"a window":                         {"100000/day", 30_000, 20_000, 0, "fixed_window", 30 * time.Minute, false},
			"a window that ends before":        {"100000/day", 30_000, 900, 0, "fixed_window", 0, false},
			"USD":                              {"50 USD/day", 5_000_000, 2_000_000, 0, "fixed_window", 50 * time.Minute, false},
			"a bucket, which is refilled":      {"1200/hour", 1000, 1400, 0, "token_bucket", time.Duration(1000 / (1400.0/1200 - 1200.0/3600) * float64(time.Second)), false},
			"a bucket that is refilled faster": {"6000/hour", 1000, 1400, 0, "token_bucket", 0, false},
			"a log, whose use expires":         {"100000/day", 30_000, 20_000, 0, "sliding_window_log", 30 * time.Minute, true},
			"a short log":                      {"100/minute", 50, 20, 0, "sliding_window_log", 0, false},
			"nothing spent":                    {"100000/day", 30_000, 0, 0, "fixed_window", 0, false},
			"nothing left":                     {"100000/day", 0, 20_000, 0, "fixed_window", 0, false},
			"a count that is far off":          {"100000/day", 30_000, 20_000, 10_000, "fixed_window", 0, false},
		} {
			s := &telemetry.Subject{Count: 20_000, Error: test.far}
			s.Steps[telemetry.SubjectSteps-1] = test.spent / 2
			s.Steps[telemetry.SubjectSteps-4] = test.spent - test.spent/2
			s.Steps[telemetry.SubjectSteps-5] = 1_000_000 // before the last 20 minutes
			state := control.LimitState{Limit: test.limit, Algorithm: test.by, Capacity: 100_000, Remaining: test.left, FullAt: &full}
			got := budgetLimitOf(state, s, lasts)
			want := time.Time{}
			if test.want > 0 {
				want = time.Now().Add(test.want)
			}
			if off := got.At.Sub(want).Abs(); off > time.Second || got.At.IsZero() != want.IsZero() || !want.IsZero() && got.Least != test.least {
				t.Errorf("%s: exhausted at %v (at the earliest: %v), want %v", name, got.At, got.Least, want)
			}
			if budgetLimitOf(state, nil, lasts).At != (time.Time{}) || budgetLimitOf(state, s, 0).At != (time.Time{}) {
				t.Errorf("%s: predicted although the pace is unknown", name)
			}
		}
	})
}

// The pace is measured over the steps that telemetry has, if they cover at least two minutes.
func TestPace(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for since, want := range map[time.Duration]time.Duration{
		time.Hour: 19 * time.Minute, 10 * time.Minute: 10 * time.Minute, 2 * time.Minute: 2 * time.Minute, 119 * time.Second: 0,
	} {
		if got := paceOf(&telemetry.View{At: at, Since: at.Add(-since)}); got != want {
			t.Errorf("%v after the start, the pace is measured over %v, want %v", since, got, want)
		}
	}
}
