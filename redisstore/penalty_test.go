package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// TestPenalty exceeds a limit through two stores at the same time.
func TestPenalty(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"server": redistest.Shared(t).URL(), "cluster": redistest.SharedCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Penalty(t, open(t, url), open(t, url))
		})
	}
}

// TestPenaltyOnCluster exceeds two of three limits, which may be on different masters. Both get a penalty, whichever
// denies first, although the other is only peeked at or given back.
func TestPenaltyOnCluster(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.SharedCluster(t).URL())
	lock, p := lockOf(t, sluice.Penalty{First: time.Hour, Factor: 2}), plan(t, sluice.FixedWindow, "2/10d")
	exceed := func(keys ...string) ([]sluice.Receipt, bool) {
		t.Helper()
		var charges []sluice.Charge
		for _, key := range keys {
			charges = append(charges, sluice.Charge{Key: key, Plan: p, Cost: 1}, sluice.Charge{Key: key, Plan: lock, Cost: 1})
		}
		receipts := takeAll(t, store, charges...)
		return receipts, sluice.Admitted(charges, receipts)
	}
	for i := range 20 {
		free, full, both := fmt.Sprint("free", i), fmt.Sprint("full", i), fmt.Sprint("both", i)
		for range 2 {
			if _, ok := exceed(full, both); !ok {
				t.Fatal("premise: one of the first two was denied")
			}
		}
		r, ok := exceed(free, full, both)
		if ok || r[1].Used != 0 || r[3].Used != 1 || r[5].Used != 1 {
			t.Errorf("exceeded two of three: %+v, want penalties for these two", r)
		}
		if r, ok := exceed(free); !ok || r[0].Used != 1 || r[1].Used != 0 {
			t.Errorf("the third: %+v, want one unit used and no penalty", r)
		}
		for range 3 {
			if again, ok := exceed(full, free); ok || again[1].Tick != r[3].Tick || again[3].Used != 0 {
				t.Errorf("during the penalty: %+v, want its end %d", again, r[3].Tick)
			}
		}
	}
}

// TestPenaltyRemembered checks that the record of a past penalty survives when a Take is given back because another
// master denies.
func TestPenaltyRemembered(t *testing.T) {
	t.Parallel()
	c := redistest.SharedCluster(t)
	store, other := open(t, c.URL()), open(t, c.URL())
	lock, p := lockOf(t, sluice.Penalty{First: time.Millisecond, Factor: 2}), plan(t, sluice.FixedWindow, "2/10d")
	for i := range 20 {
		key, full := fmt.Sprint("key", i), fmt.Sprint("full", i)
		penalty := sluice.Charge{Key: key, Plan: lock, Cost: 1}
		takeAll(t, store, sluice.Charge{Key: full, Plan: p, Cost: 2})
		takeAll(t, store, sluice.Charge{Key: key, Plan: p, Cost: 3}, penalty)
		testkit.Await(t, "the penalty is over", func() bool { return takeAll(t, store, penalty)[0].Fits })
		r := takeAll(t, other, sluice.Charge{Key: key, Plan: p, Cost: 1}, penalty, sluice.Charge{Key: full, Plan: p, Cost: 1})
		if !r[0].Fits || !r[1].Fits || r[1].Used != 1 || r[2].Fits {
			t.Fatalf("premise: %+v, want a denial by the last charge alone", r)
		}
		if n := used(t, store, key, lock); n != 1 {
			t.Errorf("%d penalties are recorded after a denial by another key, want 1", n)
		}
	}
}

// TestPenaltyExpires checks that a penalty has a key of its own, which expires when the penalty is forgotten.
func TestPenaltyExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := open(t, server.URL())
	lock, p := lockOf(t, sluice.Penalty{First: 20 * time.Minute, Factor: 2, Forget: time.Hour}), plan(t, sluice.TokenBucket, "1/10d")
	name := redisstore.Name(store, "alice", lock)
	var r []sluice.Receipt
	for range 2 {
		if got := server.Do("GET", name); got != "" {
			t.Errorf("before an offence, the state is %q", got)
		}
		r = takeAll(t, store, sluice.Charge{Key: "alice", Plan: p, Cost: 1}, sluice.Charge{Key: "alice", Plan: lock, Cost: 1})
	}
	if got, want := strings.TrimSpace(server.Do("GET", name)), fmt.Sprintf("%d:1:%d", r[1].Tick, r[1].Prev); got != want {
		t.Errorf("the state is %q, want %q", got, want)
	}
	if at := number(t, server, "PEXPIRETIME", name); at != (r[1].Prev+999)/1000 {
		t.Errorf("the key expires at %d ms, want %d µs", at, r[1].Prev)
	}
}
