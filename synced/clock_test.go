package synced_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/synced"
)

// stepped are buckets, and how far the clock of their store steps back.
var stepped = []struct {
	limit string
	by    time.Duration
}{
	{"30/5s", time.Minute}, {"100/2s burst 20", time.Minute}, {"600/hour", 24 * time.Hour},
}

// longest returns the longest time that a bucket may take to drain that so many instances share: what
// is above the burst is what each of the others may have let pass unheard.
func longest(p *sluice.Plan, instances int) time.Duration {
	units := p.Capacity + synced.Excess(p, instances)
	return time.Duration(float64(units)/float64(p.Limit.Count)*float64(p.Limit.Period)) + time.Second
}

// The clock of a real server steps back, and no key waits longer than for what its instances can have
// let pass.
func TestRedisClockStepsBack(t *testing.T) {
	t.Parallel()
	for _, c := range stepped {
		t.Run(c.limit, func(t *testing.T) {
			t.Parallel()
			server := redistest.StartMovable(t)
			p := plan(t, c.limit, sluice.TokenBucket)
			one, other := start(t, server), start(t, server)
			redistest.Eventually(t, "the instances know of each other", func() bool {
				return one.counts.Instances() == 2 && other.counts.Instances() == 2
			})
			for _, process := range []*process{one, other} {
				if r := process.take(t, "k", p, 1); !r.Fits {
					t.Fatalf("%+v", r)
				}
			}
			redistest.Eventually(t, "all is told", func() bool { return p.Decide(0, one.take(t, "k", p, 0)).Remaining <= p.Capacity-2 })
			server.SetClock(-c.by)
			redistest.Eventually(t, "the step is heard of", func() bool {
				return time.Since(time.UnixMicro(one.take(t, "k", p, 0).Now)) > c.by/2
			})
			for _, process := range []*process{one, other} {
				if d := p.Decide(0, process.take(t, "k", p, 0)); d.RetryAfter > longest(p, 2) || d.ResetAfter > longest(p, 2) {
					t.Errorf("the clock has stepped back by %v: %+v, want a wait of at most %v", c.by, d, longest(p, 2))
				}
			}
		})
	}
}
