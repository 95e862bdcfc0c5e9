package sluice

import (
	"testing"
	"time"
)

// What a log that counts by parts refuses though it fits is as documented: nothing of even
// traffic up to 32/33 of the limit, 3 % at the limit, and all that comes at once
// exactly a period after the same. It fits 1/32 of the period later.
func TestCoarseLogRefuses(t *testing.T) {
	const count, period = 3300, 32 * time.Second
	p, err := NewPlan(Limit{Count: count, Period: period, Algorithm: SlidingWindowLog})
	if err != nil {
		t.Fatal(err)
	}
	start := int64(1_700_000_000_000_000) / period.Microseconds() * period.Microseconds()
	for _, tt := range []struct {
		offered     int64 // evenly, in a period
		least, most float64
	}{{3199, 0, 0}, {3234, 0.005, 0.015}, {3300, 0.025, 0.035}} {
		var log Log
		refused, asked := 0.0, 0.0
		for i := range 20 * tt.offered {
			if !log.Step(p, start+i*period.Microseconds()/tt.offered, 1).Fits {
				refused++
			}
			asked++
		}
		if part := refused / asked; part < tt.least || part > tt.most {
			t.Errorf("%d in a period of a limit of %d: %.4f are refused, want %v to %v", tt.offered, count, part, tt.least, tt.most)
		}
	}
	for _, tt := range []struct {
		after time.Duration
		fits  bool
	}{{period, false}, {period + period/32 - time.Microsecond, false}, {period + period/32, true}} {
		var log Log
		log.Step(p, start, count)
		if r := log.Step(p, start+tt.after.Microseconds(), count); r.Fits != tt.fits {
			t.Errorf("all at once, and again after %v: %+v", tt.after, r)
		}
	}
}
