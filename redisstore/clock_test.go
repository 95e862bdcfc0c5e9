package redisstore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
)

// The clock of a real server jumps by an hour, either way, under load. A limit that is
// used up costs nobody more than its period, lets through a burst more at the most, and
// its key expires as ever.
func TestServerClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			testClockJump(t, jump)
		})
	}
}

func testClockJump(t *testing.T, jump time.Duration) {
	server := redistest.StartMovable(t)
	store := open(t, server.URL())
	var all, usedUp sync.WaitGroup
	jumped := make(chan struct{})
	for _, a := range sluice.Algorithms() {
		limit := "20/second burst 40"
		if a > sluice.GCRA {
			limit = "40/2s"
		}
		g := &greedy{t: t, store: store, plan: plan(t, a, limit)}
		usedUp.Add(1)
		all.Go(func() {
			g.until(func() bool { return g.left == 0 })
			usedUp.Done()
			<-jumped
			g.across()
		})
	}
	usedUp.Wait()
	before := server.Now()
	server.SetClock(jump)
	if moved := server.Now().Sub(before); (moved - jump).Abs() > time.Minute {
		t.Errorf("premise: the server's clock has moved by %v, not by %v", moved, jump)
	}
	close(jumped)
	all.Wait()
	redistest.Eventually(t, "all keys have expired", func() bool { return server.Do("DBSIZE") == "0" })
}

// Instances are known again after a jump as soon as they are heard of, and those that are
// not heard of any more do not stay.
func TestHeartbeatClockJumps(t *testing.T) {
	t.Parallel()
	server := redistest.StartMovable(t)
	store := open(t, server.URL())
	beat := func(id string, want int) {
		t.Helper()
		if n, err := store.Heartbeat(t.Context(), id); n != want || err != nil {
			t.Errorf("%d instances, error %v, want %d", n, err, want)
		}
	}
	beat("a", 1)
	beat("b", 2)
	beat("a", 2)
	for _, jump := range []time.Duration{-time.Hour, time.Hour} {
		server.SetClock(jump)
		beat("a", 1)
		beat("b", 2)
	}
}

// greedy takes all that there is of a key of its own, again and again.
type greedy struct {
	t        *testing.T
	store    sluice.Store
	plan     *sluice.Plan
	now      int64 // of the server, at the last answer
	left     int64 // by the last answer
	longest  int64 // between two answers
	admitted []int64
}

func (g *greedy) until(done func() bool) {
	charges, receipts := []sluice.Charge{{Key: g.plan.Limit.Algorithm.String(), Plan: g.plan}}, make([]sluice.Receipt, 1)
	for {
		cost := max(1, g.left)
		charges[0].Cost = cost
		if err := g.store.Take(g.t.Context(), charges, receipts); err != nil {
			g.t.Errorf("%v: %v", g.plan.Limit.Algorithm, err)
			return
		}
		g.longest = max(g.longest, receipts[0].Now-g.now)
		g.now, g.left = receipts[0].Now, g.plan.Decide(cost, receipts[0]).Remaining
		if receipts[0].Fits {
			g.admitted = append(g.admitted, slices.Repeat([]int64{g.now}, int(cost))...)
		}
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// across holds what is admitted in the periods after a jump, by the server's clock, to
// the limit.
func (g *greedy) across() {
	const period = 2_000_000
	g.admitted = nil
	g.until(func() bool { return true })
	begin := g.now
	g.longest = 0
	g.until(func() bool { return g.now >= begin+7*period/2 })
	first, all := 0, len(g.admitted)
	for first < all && g.admitted[first] < begin+period {
		first++
	}
	capacity := int(g.plan.Capacity)
	what := fmt.Sprintf("%v: %d in the first period after the jump, %d in the next two and a half", g.plan.Limit.Algorithm, first, all-first)
	g.t.Log(what)
	// Who is held up by a busy machine does not take all there is.
	if all-first < 2*capacity && g.longest < period/8 {
		g.t.Errorf("%s, at least %d are right", what, 2*capacity)
	}
	// What the limit allows meanwhile, in so many periods or one window more, and a burst.
	periods := float64(g.now-begin) / period
	most := (int(periods)+1)*capacity + capacity
	if g.plan.Kernel == sluice.Meter {
		most = int(periods*float64(capacity)) + 1 + capacity
	}
	if all > most {
		g.t.Errorf("%s, at most %d altogether are right", what, most)
	}
}
