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

// TestPenalty has callers of two processes exceed a limit at the same time.
func TestPenalty(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"server": redistest.Shared(t).URL(), "cluster": redistest.SharedCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Penalty(t, open(t, url), open(t, url))
		})
	}
}

// TestPenaltyOnCluster has offences against two rules on two masters: whichever refuses, and
// although the other is only looked at or given back.
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
				t.Fatal("premise: the first two do not pass")
			}
		}
		r, ok := exceed(free, full, both)
		if ok || r[1].Used != 0 || r[3].Used != 1 || r[5].Used != 1 {
			t.Errorf("exceeded two of three: %+v, want penalties of these", r)
		}
		if r, ok := exceed(free); !ok || r[0].Used != 1 || r[1].Used != 0 {
			t.Errorf("the third: %+v, want that nothing else was counted and it is not locked out", r)
		}
		for range 3 {
			if again, ok := exceed(full, free); ok || again[1].Tick != r[3].Tick || again[3].Used != 0 {
				t.Errorf("while it lasts: %+v, want the end %d", again, r[3].Tick)
			}
		}
	}
}

// TestPenaltyRemembered holds that what is given back, because another master refuses, does not
// make a penalty forgotten that is over.
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
			t.Fatalf("premise: %+v, want that the last refuses alone", r)
		}
		if n := used(t, store, key, lock); n != 1 {
			t.Errorf("%d penalties are remembered after another's refusal, want 1", n)
		}
	}
}

// TestPenaltyExpires holds what is kept of a penalty: a key of its own, until it is forgotten.
func TestPenaltyExpires(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	store := open(t, server.URL())
	lock, p := lockOf(t, sluice.Penalty{First: 20 * time.Minute, Factor: 2, Forget: time.Hour}), plan(t, sluice.TokenBucket, "1/10d")
	name := redisstore.Name(store, "alice", lock)
	var r []sluice.Receipt
	for range 2 {
		if got := server.Do("GET", name); got != "" {
			t.Errorf("without an offence there is %q", got)
		}
		r = takeAll(t, store, sluice.Charge{Key: "alice", Plan: p, Cost: 1}, sluice.Charge{Key: "alice", Plan: lock, Cost: 1})
	}
	if got, want := strings.TrimSpace(server.Do("GET", name)), fmt.Sprintf("%d:1:%d", r[1].Tick, r[1].Prev); got != want {
		t.Errorf("the state is %q, want %q", got, want)
	}
	if at := number(t, server, "PEXPIRETIME", name); at != (r[1].Prev+999)/1000 {
		t.Errorf("it expires at %d ms, want %d µs", at, r[1].Prev)
	}
}
