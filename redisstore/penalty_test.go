package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

func lockOf(t testing.TB, p sluice.Penalty) *sluice.Plan {
	t.Helper()
	plan, err := p.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestPenalty has callers of two processes exceed a limit at the same time.
func TestPenalty(t *testing.T) {
	server := redistest.Start(t)
	storetest.Penalty(t, open(t, server.URL()), open(t, "unix://"+server.Socket))
}

// TestPenaltyOnCluster has offences against two rules on two masters: whichever refuses, and
// although the other is only looked at or given back.
func TestPenaltyOnCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	store := open(t, c.URL())
	storetest.Penalty(t, store, open(t, c.URL()))
	lock, p := lockOf(t, sluice.Penalty{First: time.Hour, Factor: 2}), plan(t, sluice.FixedWindow, "2/10d")
	take := func(keys ...string) ([]sluice.Receipt, bool) {
		t.Helper()
		var charges []sluice.Charge
		for _, key := range keys {
			charges = append(charges, sluice.Charge{Key: key, Plan: p, Cost: 1}, sluice.Charge{Key: key, Plan: lock, Cost: 1})
		}
		receipts := make([]sluice.Receipt, len(charges))
		if err := store.Take(t.Context(), charges, receipts); err != nil {
			t.Fatal(err)
		}
		return receipts, sluice.Admitted(charges, receipts)
	}
	for i := range 20 {
		free, full, both := fmt.Sprint("free", i), fmt.Sprint("full", i), fmt.Sprint("both", i)
		for range 2 {
			if _, ok := take(full, both); !ok {
				t.Fatal("premise: the first two do not pass")
			}
		}
		r, ok := take(free, full, both)
		if ok || r[1].Used != 0 || r[3].Used != 1 || r[5].Used != 1 {
			t.Errorf("exceeded two of three: %+v, want penalties of these", r)
		}
		if r, ok := take(free); !ok || r[0].Used != 1 || r[1].Used != 0 {
			t.Errorf("the third: %+v, want that nothing else was counted and it is not locked out", r)
		}
		for range 3 {
			if again, ok := take(full, free); ok || again[1].Tick != r[3].Tick || again[3].Used != 0 {
				t.Errorf("while it lasts: %+v, want the end %d", again, r[3].Tick)
			}
		}
	}
}

// TestPenaltyRemembered holds that what is given back, because another master refuses, does not
// make a penalty forgotten that is over.
func TestPenaltyRemembered(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	store := open(t, c.URL())
	lock, p := lockOf(t, sluice.Penalty{First: time.Millisecond, Factor: 2}), plan(t, sluice.FixedWindow, "2/10d")
	take := func(store *redisstore.Store, charges ...sluice.Charge) []sluice.Receipt {
		t.Helper()
		receipts := make([]sluice.Receipt, len(charges))
		if err := store.Take(t.Context(), charges, receipts); err != nil {
			t.Fatal(err)
		}
		return receipts
	}
	for i := range 20 {
		key, full := fmt.Sprint("key", i), fmt.Sprint("full", i)
		penalty := sluice.Charge{Key: key, Plan: lock, Cost: 1}
		take(store, sluice.Charge{Key: full, Plan: p, Cost: 2})
		take(store, sluice.Charge{Key: key, Plan: p, Cost: 3}, penalty)
		for !take(store, penalty)[0].Fits {
			time.Sleep(time.Millisecond)
		}
		r := take(open(t, c.URL()), sluice.Charge{Key: key, Plan: p, Cost: 1}, penalty, sluice.Charge{Key: full, Plan: p, Cost: 1})
		if !r[0].Fits || !r[1].Fits || r[1].Used != 1 || r[2].Fits {
			t.Fatalf("premise: %+v, want that the last refuses alone", r)
		}
		penalty.Cost = 0
		if r := take(store, penalty); r[0].Used != 1 {
			t.Errorf("%d penalties are remembered after another's refusal, want 1", r[0].Used)
		}
	}
}

// TestPenaltyBesideForeign holds that a limit that cannot be read is not exceeded, and that a lock
// which cannot is told.
func TestPenaltyBesideForeign(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	lock, p := lockOf(t, sluice.Penalty{First: time.Hour}), plan(t, sluice.TokenBucket, "1/10d")
	limit, penalty := sluice.Charge{Key: "k", Plan: p, Cost: 1}, sluice.Charge{Key: "k", Plan: lock, Cost: 1}
	take := func(charges ...sluice.Charge) ([]sluice.Receipt, error) {
		receipts := make([]sluice.Receipt, len(charges))
		return receipts, store.Take(t.Context(), charges, receipts)
	}
	var foreign *redisstore.ForeignState
	server.Do("LPUSH", redisstore.Name(store, "k", p), "x")
	if _, err := take(limit, penalty); !errors.As(err, &foreign) || len(foreign.Keys) != 1 {
		t.Errorf("a list under the limit: error %v", err)
	}
	if r, err := take(penalty); err != nil || !r[0].Fits {
		t.Errorf("a limit that cannot be read was exceeded: %+v, %v", r, err)
	}
	server.Do("DEL", redisstore.Name(store, "k", p))
	for _, text := range []string{"x", "1:2", "1:0:5", "9:1:8", "1:1:9007199254740992", "-1:1:9", "1:1:1:1"} {
		server.Do("SET", redisstore.Name(store, "k", lock), text)
		if _, err := take(limit, penalty); !errors.As(err, &foreign) || len(foreign.Keys) != 1 || !foreign.Deleted[0] {
			t.Errorf("%q under the lock: error %v", text, err)
		}
	}
	if r, err := take(limit, penalty); err != nil || !sluice.Admitted([]sluice.Charge{limit, penalty}, r) {
		t.Errorf("after all that: %+v, %v, want that nothing was counted", r, err)
	}
}

// TestPenaltyFromMemory holds what is remembered of refusals to what the server would say: an
// offence reaches it, and a penalty in force costs no call.
func TestPenaltyFromMemory(t *testing.T) {
	server := redistest.Start(t)
	now := int64(1_700_000_000_000_000)
	first, second := redisstore.Timed(open(t, server.URL())), redisstore.Timed(open(t, server.URL()))
	model := memory.New()
	lock := lockOf(t, sluice.Penalty{First: 300 * time.Millisecond, Factor: 2})
	user, all := plan(t, sluice.TokenBucket, "1/minute"), plan(t, sluice.TokenBucket, "100/minute")
	for n := range 400 {
		now += int64(n%7) * 3000
		charges := []sluice.Charge{
			{Key: "user", Plan: user, Cost: 1}, {Key: "all", Plan: all, Cost: 1}, {Key: "user", Plan: lock, Cost: 1},
		}
		if n%5 == 0 {
			charges = charges[:2]
		}
		store := []*redisstore.TimedStore{first, second}[n%2]
		got, want := make([]sluice.Receipt, len(charges)), make([]sluice.Receipt, len(charges))
		if err := store.TakeLooseAt(t.Context(), now, charges, got); err != nil {
			t.Fatal(err)
		}
		if err := model.TakeAt(t.Context(), now, charges, want); err != nil {
			t.Fatal(err)
		}
		if len(charges) > 2 && (got[2].Tick != want[2].Tick || got[2].Fits != want[2].Fits || got[2].Used != want[2].Used) {
			t.Fatalf("take %d: %+v, want %+v", n, got, want)
		}
	}
	if first.Spared < 50 || second.Spared < 50 {
		t.Errorf("%d and %d calls were spared, of 200 each: this tells little", first.Spared, second.Spared)
	}
}

// TestPenaltyExpires holds what is kept of a penalty: a key of its own, until it is forgotten.
func TestPenaltyExpires(t *testing.T) {
	server := redistest.Start(t)
	store := open(t, server.URL())
	lock, p := lockOf(t, sluice.Penalty{First: 20 * time.Minute, Factor: 2, Forget: time.Hour}), plan(t, sluice.TokenBucket, "1/10d")
	charges := []sluice.Charge{{Key: "alice", Plan: p, Cost: 1}, {Key: "alice", Plan: lock, Cost: 1}}
	receipts := make([]sluice.Receipt, 2)
	name := redisstore.Name(store, "alice", lock)
	for range 2 {
		if got := server.Do("GET", name); got != "" {
			t.Errorf("without an offence there is %q", got)
		}
		if err := store.Take(t.Context(), charges, receipts); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.TrimSpace(server.Do("GET", name)), fmt.Sprintf("%d:1:%d", receipts[1].Tick, receipts[1].Prev); got != want {
		t.Errorf("the state is %q, want %q", got, want)
	}
	var left int64
	if _, err := fmt.Sscan(server.Do("PTTL", name), &left); err != nil || left > 80*60_000+1 || left < 79*60_000 {
		t.Errorf("it expires in %d ms (%v), want 80 minutes", left, err)
	}
}
