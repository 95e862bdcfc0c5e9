package fleet_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/replay"
	"github.com/sluicehq/sluice/internal/replay/fleet"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

const noon = int64(1_767_268_800_000_000)

// store is a store that says nothing of what it forgets, since there is room.
type store struct{ *memory.Store }

func (store) Evicted() int64 { return 0 }

func newStore() replay.Store { return store{memory.NewSize(8 << 20)} }

// passed returns how many of n requests pass, one every step from at on.
func passed(t *testing.T, s replay.Store, c sluice.Charge, at int64, n int, step time.Duration) (passed int64) {
	t.Helper()
	c.Cost = 1
	for i := range n {
		var r [1]sluice.Receipt
		switch err := s.TakeAt(t.Context(), at+int64(i)*step.Microseconds(), []sluice.Charge{c}, r[:]); {
		case err != nil && c.OnError != sluice.Deny:
			t.Fatal(err)
		case err == nil && r[0].Fits:
			passed++
		}
	}
	return passed
}

// TestAlone holds what everybody knows of limits that instances count for themselves: n of them let n
// times as many pass.
func TestAlone(t *testing.T) {
	for nodes := range 6 {
		nodes++
		s := fleet.New(fleet.Config{Nodes: nodes, Alone: true}, newStore)
		c := sluice.Charge{Key: "k", Plan: plantest.As(t, sluice.FixedWindow, "100/day")}
		if got := passed(t, s, c, noon, 2000, time.Second); got != int64(100*nodes) {
			t.Errorf("%d alone let %d pass, want %d", nodes, got, 100*nodes)
		}
	}
}

// TestSync holds the bound of an exchange: what passes above the limit is at most what comes between
// two exchanges; and the more often they talk, the closer they are to one store.
func TestSync(t *testing.T) {
	const each = 10 * time.Millisecond
	for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.SlidingWindowLog, sluice.TokenBucket} {
		last := int64(0)
		for _, sync := range []time.Duration{each, 100 * time.Millisecond, time.Second, time.Minute} {
			s := fleet.New(fleet.Config{Nodes: 4, Sync: sync}, newStore)
			c := sluice.Charge{Key: "k", Plan: plantest.As(t, a, "500/day")}
			got := passed(t, s, c, noon, 4000, each)
			within := int64(sync / each)
			if got < 500 || got > 500+within || got < last {
				t.Errorf("%v, exchange every %v: %d passed of a limit of 500, want at most %d more and no less than the %d of a quicker one", a, sync, got, within, last)
			}
			last = got
		}
		if last <= 600 {
			t.Errorf("%v: an exchange a minute let %d of 500 pass: it costs nothing?", a, last)
		}
	}
}

// TestOutage counts what each on_error lets pass while the store is away, by hand.
func TestOutage(t *testing.T) {
	p := plantest.As(t, sluice.FixedWindow, "120/day")
	for _, c := range []struct {
		onError sluice.OnError
		want    int64
	}{
		{sluice.Allow, 1000}, // all of them
		{sluice.Deny, 0},
		{sluice.Local, 120 - 60}, // the shares begin where the store was: half used, and together are the other half
	} {
		s := fleet.New(fleet.Config{Nodes: 3, Away: func(now int64) bool { return now >= noon && now < noon+time.Hour.Microseconds() }}, newStore)
		charge := sluice.Charge{Key: "k", Plan: p, OnError: c.onError}
		if got := passed(t, s, charge, noon-time.Minute.Microseconds(), 60, time.Millisecond); got != 60 {
			t.Fatalf("%d of 60 passed before", got)
		}
		if got := passed(t, s, charge, noon, 1000, time.Second); got != c.want {
			t.Errorf("%v: %d passed, want %d", c.onError, got, c.want)
		}
		// What passed was written back.
		want := int64(0)
		if c.onError == sluice.Deny {
			want = 60
		}
		if got := passed(t, s, charge, noon+time.Hour.Microseconds(), 1000, time.Second); got != want {
			t.Errorf("%v: %d passed afterwards, want %d", c.onError, got, want)
		}
	}
	// What has drained by the next request is not held against it.
	for _, a := range []sluice.Algorithm{sluice.TokenBucket, sluice.SlidingWindowCounter, sluice.SlidingWindowLog, sluice.FixedWindow} {
		s := fleet.New(fleet.Config{Nodes: 3, Away: func(now int64) bool { return now < noon+time.Minute.Microseconds() }}, newStore)
		charge := sluice.Charge{Key: "k", Plan: plantest.As(t, a, "60/minute"), OnError: sluice.Allow}
		passed(t, s, charge, noon, 100, time.Millisecond)
		if got := passed(t, s, charge, noon+time.Hour.Microseconds(), 100, time.Millisecond); got != 60 {
			t.Errorf("%v: %d of 60 passed an hour later", a, got)
		}
	}
}

// TestShared holds that without an outage the fleet is one store, for any number of instances.
func TestShared(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	one, many := newStore(), fleet.New(fleet.Config{Nodes: 7}, newStore)
	plans := []*sluice.Plan{plantest.As(t, sluice.TokenBucket, "5/minute"), plantest.As(t, sluice.SlidingWindowCounter, "7/minute"), plantest.As(t, sluice.SlidingWindowLog, "20/hour")}
	now := noon
	for i := range 5000 {
		now += r.Int64N(3_000_000)
		var charges []sluice.Charge
		for j, p := range plans {
			charges = append(charges, sluice.Charge{Key: fmt.Sprint(j, r.IntN(4)), Plan: p, Cost: 1 + r.Int64N(2)})
		}
		var a, b [3]sluice.Receipt
		if err := errors.Join(one.TakeAt(t.Context(), now, charges, a[:]), many.TakeAt(t.Context(), now, charges, b[:])); err != nil {
			t.Fatal(err)
		}
		if a != b {
			t.Fatalf("request %d: %+v, and one store says %+v", i, b, a)
		}
	}
}
