package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/policy"
)

// Whatever the clocks of processes say, and wherever they step to, nothing passes above the limit, and two
// seconds later shares have settled again.
func TestShareClockSteps(t *testing.T) {
	for _, test := range []struct {
		name  string
		steps []time.Duration // of each process, after four seconds
		off   []time.Duration // of each, from the beginning
	}{
		{"an hour ahead", []time.Duration{time.Hour}, nil},
		{"an hour back", []time.Duration{-time.Hour}, nil},
		{"a little back", []time.Duration{-300 * time.Millisecond}, nil},
		{"two seconds back", []time.Duration{-2 * time.Second}, nil},
		{"to before 1970", []time.Duration{-80 * 365 * 24 * time.Hour}, nil},
		{"one of two ahead", []time.Duration{time.Hour, 0}, nil},
		{"one of two back", []time.Duration{0, -time.Hour}, nil},
		{"two that are an hour apart", []time.Duration{0, 0}, []time.Duration{0, time.Hour}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed.Of(t), 0))
			off := append([]time.Duration(nil), test.off...)
			if off == nil {
				off = make([]time.Duration, len(test.steps))
			}
			synctest.Test(t, func(t *testing.T) { testShareClockSteps(t, r, test.steps, off) })
		})
	}
}

func testShareClockSteps(t *testing.T, r *rand.Rand, steps, off []time.Duration) {
	const rate, tick, seconds, stepAt = 200, 5 * time.Millisecond, 9, 4
	f := newFleet(t, len(steps), fmt.Sprint(rate, "/second"))
	crowd := []*caller{{name: "flood", weight: 1, rate: 2000}, {name: "a", weight: 1, rate: 20}, {name: "b", tier: "pro", weight: 3, rate: 110}}
	for _, c := range crowd {
		c.asked, c.passed = make([]float64, seconds), make([]float64, seconds)
	}
	sum := 0.0
	for at := time.Duration(0); at < seconds*time.Second; at += tick {
		if at == stepAt*time.Second {
			for i := range off {
				off[i] += steps[i]
			}
		}
		if at%(250*time.Millisecond) == 0 && len(f) > 1 {
			said := make([][]byte, len(f))
			for i, e := range f {
				said[i] = e.Demand(time.Now().Add(off[i]))
			}
			for i, e := range f {
				e.HearDemand(time.Now().Add(off[i]), [][]byte{said[1-i]})
			}
		}
		for _, i := range r.Perm(len(crowd)) {
			c := crowd[i]
			for ; c.next <= at; c.next += c.every() {
				n := r.IntN(len(f))
				d := f[n].Decide(t.Context(), &policy.Request{
					Header: http.Header{"X-Tenant": {c.name}, "X-Plan": {c.tier}}, Time: time.Now().Add(off[n]),
				})
				if c.asked[at/time.Second]++; d.Allowed {
					c.passed[at/time.Second]++
					sum++
				}
			}
		}
		if most := rate * (1 + (at + tick).Seconds()); sum > most {
			t.Fatalf("%v passed in %v", sum, at)
		}
		time.Sleep(tick)
	}
	for _, span := range [][2]int{{2, stepAt}, {stepAt + 2, seconds}} {
		used := 0.0
		for _, c := range crowd {
			got, asked := c.got(span[0], span[1]), mean(c.asked[span[0]:span[1]])
			used += got
			if c.name != "flood" && got < 0.95*asked-1 {
				t.Errorf("%s got %v of %v from %d s to %d s: %v", c.name, got, asked, span[0], span[1], c.passed)
			}
		}
		if used < 0.97*rate {
			t.Errorf("%v a second passed from %d s to %d s", used, span[0], span[1])
		}
	}
}
