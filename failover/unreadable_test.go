package failover_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// A key that cannot be read is decided by the on_error of its charge alone, and all others are counted as ever.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.TokenBucket, sluice.SlidingWindowLog} {
		bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			p, bad := plan(t, "3/day", sluice.FixedWindow), plan(t, "3/day", a)
			sv.Set(faultstore.Spoil(nil, "bad"))
			for i, want := range []struct {
				on        sluice.OnError
				shadow    bool
				good      int64 // the cost of the good key
				fits      bool  // the bad one
				admitted  bool
				used      int64 // of the good one, in the shared store
				remaining int64 // of the share of the bad one
			}{
				{on: sluice.Deny, good: 1, fits: false, admitted: false, used: 0},
				{on: sluice.Deny, shadow: true, good: 1, fits: false, admitted: true, used: 1},
				{on: sluice.Local, good: 1, fits: true, admitted: true, used: 2, remaining: 2},
				{on: sluice.Local, good: 9, fits: true, admitted: false, used: 2, remaining: 2}, // nothing is taken of the share
				{on: sluice.Local, good: 0, fits: true, admitted: true, used: 2, remaining: 1},
				{on: sluice.Local, good: 0, fits: true, admitted: true, used: 2, remaining: 0},
				{on: sluice.Local, good: 1, fits: false, admitted: false, used: 2, remaining: 0},
				{on: sluice.Local, shadow: true, good: 1, fits: false, admitted: true, used: 3, remaining: 0},
				{on: sluice.Allow, good: 0, fits: true, admitted: true, used: 3, remaining: 0},
				{on: sluice.Allow, good: 1, fits: true, admitted: false, used: 3, remaining: 0},
			} {
				charges := []sluice.Charge{
					{Key: "good", Plan: p, Cost: want.good, OnError: sluice.Deny},
					{Key: "bad", Plan: bad, Cost: 1, OnError: want.on, Shadow: want.shadow},
				}
				if i%2 == 1 {
					slices.Reverse(charges)
				}
				receipts := charge(t, s, charges...)
				g, b := receipts[i%2], receipts[1-i%2]
				if g.Origin.Degraded() || !b.Origin.Degraded() || b.Fits != want.fits || g.Used != want.used || sluice.Admitted(charges, receipts) != want.admitted {
					t.Errorf("%v, step %d %+v: good %+v, bad %+v", a, i, want, g, b)
				}
				if n := bad.Decide(0, b).Remaining; want.on == sluice.Local && n != want.remaining {
					t.Errorf("%v, step %d: %d of the share remain, want %d", a, i, n, want.remaining)
				}
			}
			if st := s.Status(); st.Degraded() || st.Unreadable != 10 || st.Local != 0 || st.Failed != 0 || st.Owing != 0 {
				t.Errorf("%v: status %+v", a, st)
			}
		})
	}
}

// However often such keys are asked for, no circuit opens, and a key is logged once in a minute, ten keys at most.
func TestUnreadableOften(t *testing.T) {
	t.Parallel()
	var log lines
	bubble(t, failover.Config{Logger: logTo(&log)}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "1000000/day", sluice.TokenBucket)
		var spoiled []string
		for i := range 51 {
			spoiled = append(spoiled, fmt.Sprintf("bad%d.", i))
		}
		sv.Set(faultstore.Spoil(nil, spoiled...))
		const asked = 400
		for i := range asked {
			if r := take(t, s, spoiled[0], p, sluice.Deny); r.Fits || !r.Origin.Degraded() {
				t.Fatalf("take %d: %+v of the bad key", i, r)
			}
			if r := take(t, s, "good", p, sluice.Deny); !r.Fits || r.Origin.Degraded() || s.Status().Degraded() {
				t.Fatalf("take %d: %+v of the good key", i, r)
			}
		}
		if n, named := log.about("holds something else"), log.about("bad0."); n != 1 || named != 1 || s.Status().Unreadable != asked {
			t.Errorf("%d lines in the log, %d of them name the key, status %+v", n, named, s.Status())
		}
		for _, key := range spoiled {
			take(t, s, key, p, sluice.Deny)
		}
		if n := log.about("holds something else"); n != 10 {
			t.Errorf("%d lines about 51 keys, want 10", n)
		}
		time.Sleep(time.Minute)
		take(t, s, spoiled[0], p, sluice.Deny)
		if n := log.about("bad0."); n != 2 || log.about("not_logged_since=400") != 1 || log.about("not_logged_since=41\n") != 1 {
			t.Errorf("a minute later: %s", log.all)
		}
	})
}

// What was decided without the store is not written to a key that cannot be read, and a probe that cannot be read
// is a sign of life.
func TestUnreadableDebt(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "3/minute", sluice.TokenBucket)
		cut(t, sv, s, faultstore.Unsent)
		take(t, s, "k", p, sluice.Local)
		if n := s.Status().Owing; n != 1 {
			t.Fatalf("%d keys owe", n)
		}
		sv.Set(func(context.Context, faultstore.Call) error { return &faultstore.Odd{Indexes: []int{0}} })
		before := sv.Calls.Load()
		time.Sleep(10 * time.Second)
		if st := s.Status(); st.Degraded() || st.Owing != 0 || st.WrittenBack != 0 || sv.Calls.Load() != before+1 {
			t.Errorf("status %+v, %d calls to write one key", st, sv.Calls.Load()-before)
		}
	})
}

// If the store goes away while the other charges are decided, all is decided as without it, and the share is charged
// once.
func TestUnreadableThenAway(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "3/minute", sluice.FixedWindow)
		charges := []sluice.Charge{{Key: "bad", Plan: p, Cost: 1, OnError: sluice.Local}, {Key: "good", Plan: p, Cost: 1, OnError: sluice.Local}}
		sv.Set(faultstore.Spoil(faultstore.Unsent, "bad"))
		for i := range 4 {
			receipts := charge(t, s, charges...)
			want := int64(max(0, 2-i))
			for j, r := range receipts {
				if n := p.Decide(0, r).Remaining; !r.Origin.Degraded() || r.Fits != (i < 3) || n != want {
					t.Errorf("take %d, charge %d: %+v, %d remain, want %d", i, j, r, n, want)
				}
			}
		}
		if st := s.Status(); st.Local != 4 || st.Unreadable != 4 || st.Failed != 4 {
			t.Errorf("status %+v", st)
		}
	})
}

// A text in a real server is in the way of one decision, and a list until it is deleted.
func TestRedisUnreadable(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	var log lines
	s := overRedis(t, server.URL(), failover.Config{Deadline: time.Minute, Logger: logTo(&log)})
	p := plan(t, "3/day", sluice.FixedWindow)
	take(t, s, "k", p, sluice.Deny)
	name := server.Do("KEYS", "*:k")
	look := func(what string, degraded bool, want int64) {
		t.Helper()
		if r := take(t, s, "k", p, sluice.Deny); r.Origin.Degraded() != degraded || !degraded && r.Used != want {
			t.Errorf("%s: %+v", what, r)
		}
	}
	server.Do("SET", name, "garbage")
	look("a text", true, 0)
	look("after it", false, 1)
	server.Do("DEL", name)
	server.Do("RPUSH", name, "x")
	look("a list", true, 0)
	look("a list", true, 0)
	server.Do("DEL", name)
	look("after it", false, 1)
	if log.about("it was deleted") != 1 || log.about("holds something else") != 2 || log.about(name) != 2 {
		t.Errorf("%q", log.all)
	}
}

// overRedis returns a failover store over the server at a URL.
func overRedis(t *testing.T, url string, c failover.Config) *failover.Store {
	t.Helper()
	shared, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s := open(shared, c)
	t.Cleanup(func() {
		s.Close()
		shared.Close()
	})
	return s
}
