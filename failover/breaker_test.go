package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

// The circuit opens within a second of the first call in a fault, and closes within two seconds of its end, at any rate
// of calls, for any fault, and for any timeout of the callers. In between, no caller waits, and only probes are sent.
func TestCircuit(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		for _, interval := range []time.Duration{2 * time.Millisecond, 100 * time.Millisecond, 900 * time.Millisecond} {
			for _, patience := range []time.Duration{time.Hour, 5 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s every %v for %v", name, interval, patience), func(t *testing.T) {
					t.Parallel()
					var log lines
					bubble(t, failover.Config{Logger: logTo(&log)}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
						testCircuit(t, sv, s, f, interval, patience)
					})
					changes := slices.DeleteFunc(slices.Clone(log.all), func(line string) bool { return strings.Contains(line, "has failed") })
					if len(changes) != 2 || !strings.Contains(changes[0], "unavailable") || !strings.Contains(changes[1], "available again") || len(log.all) > 3 {
						t.Errorf("%d lines of log, want one for each change, and at most one for the failed calls: %q", len(log.all), log.all)
					}
				})
			}
		}
	}
}

func testCircuit(t *testing.T, sv *faultstore.Store, s *failover.Store, f faultstore.Fault, interval, patience time.Duration) {
	p := plan(t, "100000/minute", sluice.TokenBucket)
	var open atomic.Bool
	end := steadily(interval, func() {
		wasOpen, start := open.Load(), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		if took := time.Since(start); took > failover.DefaultDeadline || wasOpen && took != 0 {
			t.Errorf("a decision took %v, with an open circuit: %v", took, wasOpen)
		}
	})
	defer end()
	time.Sleep(2 * time.Second)
	if st := s.Status(); st.Degraded() || st.Local > 0 || st.Shared == 0 {
		t.Errorf("before the fault: %+v", st)
	}

	sv.Set(f)
	// The time starts with the first call or probe that can notice the fault.
	calls, probes := sv.Calls.Load(), sv.Probes.Load()
	until(t, 2*time.Second, "a call is sent", func() bool { return sv.Calls.Load()+sv.Probes.Load() > calls+probes })
	until(t, time.Second, "the circuit opens", func() bool { return s.Status().Degraded() })
	synctest.Wait() // a caller of this moment may have found the circuit closed
	open.Store(true)
	calls, probes = sv.Calls.Load(), sv.Probes.Load()
	time.Sleep(5 * time.Second)
	if n := sv.Calls.Load() - calls; n != 0 {
		t.Errorf("%d calls have been sent while the circuit was open", n)
	}
	if n := sv.Probes.Load() - probes; n < 5 || n > 15 {
		t.Errorf("%d probes in 5 s, want about 10", n)
	}
	open.Store(false)

	sv.Set(nil)
	until(t, 2*time.Second, "the circuit closes", func() bool { return !s.Status().Degraded() })
	time.Sleep(3 * time.Second)
	calls = sv.Calls.Load()
	time.Sleep(2 * time.Second)
	if st := s.Status(); sv.Calls.Load() == calls || st.Owing != 0 || st.Degraded() {
		t.Errorf("after the fault: %+v", st)
	}
}

// twoParts divides a store into two shards. The second has the keys that start with 2, and some keys of probes.
func twoParts(key string) int {
	if strings.HasPrefix(key, "2") || strings.HasPrefix(key, "failover/") && strings.HasSuffix(key, "7") {
		return 1
	}
	return 0
}

// secondFrozen is a fault that freezes the second shard.
func secondFrozen(ctx context.Context, c faultstore.Call) error {
	for i := range c.Charges {
		if twoParts(c.Charges[i].Key) == 1 {
			return faultstore.Frozen(ctx, c)
		}
	}
	return c.Take()
}

// A shard that fails affects only the requests that need it.
func TestShards(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		sv.Split(twoParts)
		p := plan(t, "1000000/minute", sluice.TokenBucket)
		take(t, s, "1", p, sluice.Local)
		take(t, s, "2", p, sluice.Local)
		if st := s.Status(); len(st.Shards) != 2 || st.Local != 0 {
			t.Fatalf("status %+v", st)
		}
		sv.Set(secondFrozen)
		end := steadily(10*time.Millisecond, func() {
			charge(t, s, sluice.Charge{Key: "1", Plan: p, Cost: 1}, sluice.Charge{Key: "2", Plan: p, Cost: 1})
		})
		// All requests need both shards, so only probes show which shard fails.
		until(t, time.Second, "the circuit opens", func() bool { return s.Status().Shards[1].Unavailable })
		for range 1000 {
			start := time.Now()
			for key, unavailable := range map[string]bool{"1": false, "2": true} {
				if r := take(t, s, key, p, sluice.Local); r.Origin.Degraded() != unavailable || time.Since(start) != 0 {
					t.Fatalf("%s: %+v after %v", key, r, time.Since(start))
				}
			}
			time.Sleep(10 * time.Millisecond)
			if s.Status().Shards[0].Unavailable {
				t.Fatal("the circuit of the other shard is open")
			}
		}
		end()
		sv.Set(nil)
		until(t, 2*time.Second, "the circuit closes", func() bool { return !s.Status().Degraded() })
		until(t, 5*time.Second, "all debts are written", func() bool { return s.Status().Owing == 0 })
		if r := take(t, s, "2", p, sluice.Local); r.Origin.Degraded() {
			t.Errorf("a shard that is available again: %+v", r)
		}
	})
}

// A store may use any numbers for its shards, and the number of circuits is bounded.
func TestManyShardsAreBounded(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		sv.Split(func(key string) int { return map[string]int{"low": -5, "high": 1 << 40}[key] })
		p := plan(t, "10/day", sluice.FixedWindow)
		for _, key := range []string{"low", "high"} {
			if r := take(t, s, key, p, sluice.Local); r.Origin.Degraded() || !r.Fits {
				t.Errorf("%s: %+v", key, r)
			}
		}
		if n := len(s.Status().Shards); n > 256 {
			t.Errorf("%d shards", n)
		}
	})
}

// Decisions that the shared store makes without its server do not prove that the server is alive, and Config.OnCall is
// not called for them. A local allowance starts with the units that a sync has counted.
func TestKnown(t *testing.T) {
	t.Parallel()
	for origin, left := range map[sluice.Origin]int64{sluice.ByDenyCache: 10, sluice.ByLease: 10, sluice.BySync: 9} {
		t.Run(origin.String(), func(t *testing.T) {
			var reported []error
			asked := func(took time.Duration, err error) { reported = append(reported, err) }
			bubble(t, failover.Config{OnCall: asked}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
				p := plan(t, "10/day", sluice.FixedWindow)
				know(sv, origin)
				sv.Set(faultstore.Unsent)
				failures := 0
				for ; !s.Status().Degraded() && failures < 100; failures++ {
					for range 9 {
						if r := take(t, s, "known", p, sluice.Local); r.Origin != origin || r.Fits != (origin != sluice.ByDenyCache) {
							t.Errorf("%+v", r)
						}
					}
					take(t, s, "k", p, sluice.Allow)
					synctest.Wait() // until the failure is counted
				}
				if st := s.Status(); failures > 20 || st.Shared != uint64(9*failures) || st.Local != uint64(failures) || len(reported) != failures {
					t.Errorf("unavailable after %d failures, with %d calls of OnCall: %+v", failures, len(reported), st)
				}
				r := spend(t, s, "known", p, 0, sluice.Local)
				if d := p.Decide(0, r); d.Origin != sluice.ByLocalShare || d.Remaining != left {
					t.Errorf("while the store is unavailable: %+v, want %d left", d, left)
				}
			})
		})
	}
}

// know makes a store decide the key "known" without its server: a Take fits as if the key were new, or is denied if the
// origin is ByDenyCache.
func know(sv *faultstore.Store, origin sluice.Origin) {
	sv.Know(func(c faultstore.Call) bool {
		if c.Charges[0].Key != "known" {
			return false
		}
		c.Charges[0].Plan.Step(kernel.State{}, time.Now().UnixMicro(), c.Charges[0].Cost, &c.Receipts[0].Receipt)
		c.Receipts[0].Origin = origin
		c.Receipts[0].Fits = origin != sluice.ByDenyCache
		return true
	})
}

// Config.OnCall is called after each decision of the server, alone or in a list, with its duration and error. It is not
// called for a decision that the caller has not waited for.
func TestAsked(t *testing.T) {
	t.Parallel()
	var reported, failed int
	asked := func(took time.Duration, err error) {
		reported++
		if err != nil {
			failed++
		}
		if took != time.Millisecond {
			t.Errorf("a decision took %v, want a millisecond", took)
		}
	}
	bubble(t, failover.Config{OnCall: asked}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		p := plan(t, "10/day", sluice.TokenBucket)
		step := func(what string, wantReported, wantFailed int) {
			t.Helper()
			if reported != wantReported || failed != wantFailed {
				t.Errorf("%s: OnCall was called %d times, %d of them with errors; want %d and %d", what, reported, failed, wantReported, wantFailed)
			}
		}
		sv.Set(faultstore.Late(func() time.Duration { return time.Millisecond }))
		take(t, s, "k", p, sluice.Deny)
		step("one", 1, 0)
		// A list of one call takes as long as the call.
		s.TakeEach(t.Context(), many(p, 1))
		step("a list", 2, 0)
		sv.Set(func(context.Context, faultstore.Call) error {
			time.Sleep(time.Millisecond)
			return faultstore.NotSent{}
		})
		take(t, s, "k", p, sluice.Deny)
		s.TakeEach(t.Context(), many(p, 1))
		step("failures", 4, 2)
		sv.Set(faultstore.Frozen)
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_ = s.Take(gone, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
		step("a caller that is gone", 4, 2)
	})
}

// Decisions that the shared store remembers need no call, so they are made even while MaxCalls calls hang.
func TestKnownNeedsNoCall(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{MaxCalls: 1}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		know(sv, sluice.ByDenyCache)
		sv.Set(faultstore.Frozen)
		p := plan(t, "1/day", sluice.FixedWindow)
		var hanging sync.WaitGroup
		hanging.Go(func() { take(t, s, "k", p, sluice.Allow) })
		synctest.Wait()
		for key, want := range map[string]sluice.Origin{"known": sluice.ByDenyCache, "other": sluice.ByOnError} {
			if r := take(t, s, key, p, sluice.Allow); r.Origin != want {
				t.Errorf("%s, while a call hangs: %+v", key, r)
			}
		}
		hanging.Wait()
		if st := s.Status(); st.Shared != 1 || st.Overflow != 1 || st.TimedOut != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// A request that is decided partly from memory only proves that the shards that have answered are alive.
func TestKnownInPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sv := faultstore.New(memory.New())
		sv.Split(twoParts)
		s := open(sv, failover.Config{})
		defer s.Close()
		p := plan(t, "1000000/day", sluice.FixedWindow)
		fail := func(key string) {
			sv.Set(faultstore.Unsent)
			take(t, s, key, p, sluice.Allow)
			sv.Set(nil)
		}
		sv.Know(func(c faultstore.Call) bool {
			if len(c.Charges) == 2 { // the second shard answers, and the denial of the first is remembered
				c.Receipts[0] = sluice.Receipt{Receipt: kernel.Receipt{Now: 1, Used: 1}, Origin: sluice.ByDenyCache}
				c.Receipts[1] = sluice.Receipt{Receipt: kernel.Receipt{Now: 1, Used: 1, Fits: true}}
			}
			return len(c.Charges) == 2
		})
		for range 30 { // with these, less than half of the calls of the second shard fail
			charge(t, s, sluice.Charge{Key: "1", Plan: p, Cost: 1}, sluice.Charge{Key: "2", Plan: p, Cost: 1})
		}
		for range 20 {
			fail("2")
			fail("1")
		}
		if st := s.Status(); !st.Shards[0].Unavailable || st.Shards[1].Unavailable {
			t.Errorf("status %+v", st)
		}
	})
}

// While the circuit is closed, errors of failed calls are logged, at most once a minute for each shard.
func TestFailedCallsAreLogged(t *testing.T) {
	t.Parallel()
	var log lines
	bubble(t, failover.Config{Logger: logTo(&log)}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		sv.Split(twoParts)
		sv.Set(func(ctx context.Context, c faultstore.Call) error {
			if strings.HasSuffix(c.Charges[0].Key, "bad") {
				return errors.New("bad reply: a " + c.Charges[0].Key)
			}
			return c.Take()
		})
		p := plan(t, "1000000/day", sluice.FixedWindow)
		calls := map[string]func(){
			"1bad": func() { take(t, s, "1bad", p, sluice.Allow) },
			"2bad": func() {
				s.TakeEach(t.Context(), []sluice.TakeCall{{Charges: []sluice.Charge{{Key: "2bad", Plan: p, Cost: 1}}, Receipts: make([]sluice.Receipt, 1)}})
			},
			"3bad": func() {
				charge(t, s, sluice.Charge{Key: "3bad", Plan: p, Cost: 1}, sluice.Charge{Key: "2", Plan: p, Cost: 1})
			},
		}
		for _, key := range []string{"1bad", "2bad", "3bad"} {
			for range 170 { // 170 s
				for range 9 {
					charge(t, s, sluice.Charge{Key: "1", Plan: p, Cost: 1})
					charge(t, s, sluice.Charge{Key: "2", Plan: p, Cost: 1})
				}
				calls[key]()
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			if n := log.about("bad reply: a " + key); n != 3 || len(log.all) != n {
				t.Errorf("%s: %d lines in three minutes: %q", key, n, log.all)
			}
			log.all = nil
		}

		cut(t, sv, s, faultstore.Refused)
		take(t, s, "1", p, sluice.Local)
		time.Sleep(time.Minute)
		sv.Set(func(_ context.Context, c faultstore.Call) error {
			if c.Charges[0].Shadow {
				return faultstore.NotSent{}
			}
			return c.Take()
		})
		until(t, 5*time.Second, "a failed write-back is logged", func() bool { return log.about("not sent") > 0 })
		sv.Set(nil)
	})
}
