package redisstore_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

// The clock of a real server jumps by an hour, either way. A limit that is used up is free again after its
// period, lets through a burst more at the most, and its key expires as ever. An instance is known again as
// soon as it is heard of, and one that is not heard of any more does not stay.
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
			for _, a := range sluice.Algorithms() {
				if r := plantest.One(t, store, a.String(), jumpPlan(t, a), 40); !r.Fits {
					t.Fatalf("premise: %v: %+v", a, r)
				}
			}
			beat("a", 1)
			beat("b", 2)
			before := server.Now()
			server.SetClock(jump)
			if moved := server.Now().Sub(before); (moved - jump).Abs() > time.Minute {
				t.Errorf("premise: the server's clock has moved by %v, not by %v", moved, jump)
			}
			beat("a", 1)
			beat("b", 2)
			testAfterJump(t, server, redisstore.Timed(store), jump)
		})
	}
}

func jumpPlan(t *testing.T, a sluice.Algorithm) *sluice.Plan {
	if a <= sluice.GCRA {
		return plan(t, a, "2/second burst 40")
	}
	return plan(t, a, "40/20s")
}

// testAfterJump takes all that there is in the three and a half periods after a jump.
func testAfterJump(t *testing.T, server *redistest.Server, store *redisstore.TimedStore, jump time.Duration) {
	const period = 20
	admitted, first := map[sluice.Algorithm]int64{}, map[sluice.Algorithm]int{}
	for second := range period * 7 / 2 {
		server.SetClock(jump + time.Duration(second)*time.Second)
		for _, a := range sluice.Algorithms() {
			p := jumpPlan(t, a)
			fits := true
			for cost := int64(1); fits; { // by the script, since the store's process has no clock that jumps
				r := make([]sluice.Receipt, 1)
				if err := store.TakeAll(t.Context(), [][]sluice.Charge{{{Key: a.String(), Plan: p, Cost: cost}}}, [][]sluice.Receipt{r}); err != nil {
					t.Fatal(err)
				}
				if fits = r[0].Fits; fits {
					admitted[a] += cost
				}
				if first[a] == 0 && fits {
					first[a] = second + 1
				}
				cost = max(1, p.Decide(cost, r[0]).Remaining)
			}
		}
	}
	for _, a := range sluice.Algorithms() {
		// Two periods and more have passed since it was free, and a window or a burst may come on top.
		if n := admitted[a]; first[a] == 0 || first[a] > 2*period+2 || n < 40 || n > 40*7/2+2*40 {
			t.Errorf("%v: free again after %d seconds, and then %d units of 40 in 20 seconds", a, first[a]-1, n)
		}
	}
	server.SetClock(jump + 10*time.Minute)
	testkit.Await(t, "all keys have expired", func() bool { return server.Do("DBSIZE") == "0" })
}
