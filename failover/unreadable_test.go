package failover_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// spoiled returns a failover store over a Redis in which the state of the key "bad" is made
// into something else by a command, whose first argument is to be the name.
func spoiled(t *testing.T, p *sluice.Plan, command string, args ...string) (*failover.Store, *redistest.Server, *lines) {
	t.Helper()
	server := redistest.Start(t)
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	log := new(lines)
	s := failover.New(shared, failover.Config{Instances: 1, Deadline: time.Minute, Logger: logTo(log)})
	t.Cleanup(func() {
		s.Close()
		shared.Close()
	})
	take(t, s, "bad", p, sluice.Deny)
	name := server.Do("KEYS", "*:bad")
	server.Do("DEL", name)
	server.Do(append([]string{command, name}, args...)...)
	return s, server, log
}

// A key that holds a list is decided by the on_error of its charge alone, and all others are
// counted as ever.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	p := plan(t, "3/day", sluice.FixedWindow)
	type step struct {
		on        sluice.OnError
		shadow    bool
		good      int64 // what is asked of the good key
		fits      bool  // the bad one
		admitted  bool
		used      int64 // of the good one, in the shared store
		remaining int64 // of the share of the bad one
	}
	for _, a := range []sluice.Algorithm{sluice.FixedWindow, sluice.TokenBucket, sluice.SlidingWindowLog} {
		bad := plan(t, "3/day", a)
		s, _, _ := spoiled(t, bad, "RPUSH", "x")
		for i, want := range []step{
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
	}
}

// Whoever asks for such a key, and however often, takes the store away from nobody, and
// does not fill the log.
func TestUnreadableOften(t *testing.T) {
	t.Parallel()
	p := plan(t, "1000000/day", sluice.TokenBucket)
	s, server, log := spoiled(t, p, "RPUSH", "x")
	name := server.Do("KEYS", "*:bad")
	const asked = 400
	for i := range asked {
		if r := take(t, s, "bad", p, sluice.Deny); r.Fits || !r.Origin.Degraded() {
			t.Fatalf("take %d: %+v of the bad key", i, r)
		}
		if r := take(t, s, "good", p, sluice.Deny); !r.Fits || r.Origin.Degraded() {
			t.Fatalf("take %d: %+v of the good key", i, r)
		}
		if s.Status().Degraded() {
			t.Fatalf("the circuit is open after %d", i)
		}
	}
	if n := log.about("holds something else"); n != 1 || !strings.Contains(log.all[0], name) {
		t.Errorf("%d lines in the log, the first is %q", n, log.all[0])
	}
	if n := s.Status().Unreadable; n != asked {
		t.Errorf("%d decisions are counted as unreadable, want %d", n, asked)
	}
	for i := range 50 {
		key := fmt.Sprint("bad", i)
		take(t, s, key, p, sluice.Deny)
		name := server.Do("KEYS", "*:"+key)
		server.Do("DEL", name)
		server.Do("RPUSH", name, "x")
		take(t, s, key, p, sluice.Deny)
	}
	if n := log.about("holds something else"); n != 10 {
		t.Errorf("%d lines about 51 keys, want 10", n)
	}
	server.Do("DEL", name)
	if r := take(t, s, "bad", p, sluice.Deny); !r.Fits || r.Origin.Degraded() {
		t.Errorf("%+v after the key was deleted", r)
	}
}

// about returns how many lines contain a text.
func (l *lines) about(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// A text is in the way of one decision.
func TestUnreadableHeals(t *testing.T) {
	t.Parallel()
	p := plan(t, "3/day", sluice.FixedWindow)
	s, _, log := spoiled(t, p, "SET", "garbage")
	for i, want := range []struct{ local, fits bool }{{true, false}, {false, true}, {false, true}, {false, true}, {false, false}} {
		if r := take(t, s, "bad", p, sluice.Deny); r.Origin.Degraded() != want.local || r.Fits != want.fits {
			t.Errorf("take %d: %+v, want %+v", i, r, want)
		}
	}
	if n := log.about("it was deleted"); n != 1 {
		t.Errorf("%d lines in the log", n)
	}
}

// odd says that the first charge cannot be read.
type odd struct{}

func (odd) Error() string     { return "cannot read the first" }
func (odd) Unreadable() []int { return []int{0} }
func (odd) NotCharged() bool  { return true }

// What was decided without the store is not written to a key that cannot be read, and a
// probe that cannot be read is a sign of life.
func TestUnreadableDebt(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "3/minute", sluice.TokenBucket)
		cut(t, sv, s, unsent)
		take(t, s, "k", p, sluice.Local)
		if n := s.Status().Owing; n != 1 {
			t.Fatalf("%d keys owe", n)
		}
		sv.set(func(context.Context, []sluice.Charge, func() error) error { return odd{} })
		before := sv.calls.Load()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if st := s.Status(); st.Degraded() || st.Owing != 0 || st.WrittenBack != 0 {
			t.Errorf("status %+v", st)
		}
		if n := sv.calls.Load() - before; n != 1 {
			t.Errorf("it was written %d times", n)
		}
	})
}

// If the store goes away while the others are asked for, all is decided as without it, and
// the share is charged once.
func TestUnreadableThenAway(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "3/minute", sluice.FixedWindow)
		charges := []sluice.Charge{{Key: "bad", Plan: p, Cost: 1, OnError: sluice.Local}, {Key: "good", Plan: p, Cost: 1, OnError: sluice.Local}}
		sv.set(func(_ context.Context, charges []sluice.Charge, take func() error) error {
			if charges[0].Key == "bad" {
				return odd{}
			}
			return notSent{}
		})
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
