package redisstore_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
)

// The clock of a real server jumps by an hour, either way. A limit that is used up is free again after its
// period, and its key expires as ever. An instance is known again as soon as it is heard of, and one that is not
// heard of any more does not stay.
func TestServerClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			server := redistest.StartMovable(t)
			store := open(t, server.URL())
			beat := func(id string, want int) {
				t.Helper()
				if n, err := store.Heartbeat(t.Context(), id); n != want || err != nil {
					t.Errorf("%d instances, error %v, want %d", n, err, want)
				}
			}
			plans := plansOf(t, "40/20s")
			fit := func(cost func(*sluice.Plan) int64) (n int) {
				other := open(t, server.URL()) // which remembers no refusal
				for _, p := range plans {
					if plantest.One(t, other, p.Limit.Algorithm.String(), p, cost(p)).Fits {
						n++
					}
				}
				return n
			}
			all, one := func(p *sluice.Plan) int64 { return p.Capacity }, func(*sluice.Plan) int64 { return 1 }
			fit(all)
			beat("a", 1)
			beat("b", 2)
			server.SetClock(jump)
			beat("a", 1)
			beat("b", 2)
			fit(one)
			server.SetClock(jump + 41*time.Second) // two windows and more
			if n := fit(one); n != len(plans) {
				t.Errorf("two periods after the jump %d of %d limits have a unit", n, len(plans))
			}
			server.SetClock(jump + 10*time.Minute)
			redistest.Eventually(t, "all keys have expired", func() bool { return server.Do("DBSIZE") == "0" })
		})
	}
}
