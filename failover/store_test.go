package failover_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

// locally sets the OnError of all charges to Local.
type locally struct{ sluice.Store }

func (l locally) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	local := append([]sluice.Charge(nil), charges...)
	for i := range local {
		local[i].OnError = sluice.Local
	}
	return l.Store.Take(ctx, local, receipts)
}

// A failover store keeps the contract of all stores, and so does a single instance without its shared store.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("shared", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T) sluice.Store {
			// The deadline is so long that a busy machine is not taken for a slow store.
			s := open(failover.Bulkhead(memory.New(), 0), failover.Config{Deadline: time.Minute})
			t.Cleanup(s.Close)
			return s
		})
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T) sluice.Store {
			sv := faultstore.New(memory.New())
			sv.Set(faultstore.Unsent)
			s := open(failover.Bulkhead(sv, 0), failover.Config{})
			t.Cleanup(s.Close)
			return locally{s}
		})
	})
}

// foreign runs f in virtual time with a failover store over a Bulkhead, which allows for stores that are slow to notice
// the end of a context. It waits until all calls have returned.
func foreign(t *testing.T, c failover.Config, f func(t *testing.T, sv *faultstore.Store, s *failover.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sv := faultstore.New(memory.New())
		s := open(failover.Bulkhead(sv, c.MaxCalls), c)
		defer time.Sleep(2 * time.Hour)
		defer s.Close()
		f(t, sv, s)
	})
}

// No caller waits for longer than the deadline, even for a store that ignores contexts, and a panic of such a store is
// a failure like others.
func TestDeadline(t *testing.T) {
	t.Parallel()
	boom := func(context.Context, faultstore.Call) error { panic("boom") }
	for name, c := range map[string]struct {
		fault            faultstore.Fault
		took             time.Duration
		timedOut, failed uint64
		text             string
	}{
		"frozen": {faultstore.Frozen, failover.DefaultDeadline, 1, 0, "deadline"},
		"deaf":   {faultstore.Deaf, failover.DefaultDeadline, 1, 0, "deadline"},
		"panics": {boom, 0, 0, 1, "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			foreign(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
				sv.Set(c.fault)
				start := time.Now()
				r := take(t, s, "k", plan(t, "3/minute", sluice.TokenBucket), sluice.Local)
				if took := time.Since(start); took != c.took || !r.Origin.Degraded() || !r.Fits {
					t.Errorf("after %v: %+v", took, r)
				}
				st := s.Status()
				if st.TimedOut != c.timedOut || st.Failed != c.failed || st.Local != 1 || st.Shared != 0 || !strings.Contains(fmt.Sprint(st.Shards[0].LastError), c.text) {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// An answer that comes too late does not touch the caller's charges and receipts.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	foreign(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		var late atomic.Value
		p := plan(t, "3/day", sluice.FixedWindow)
		sv.Set(func(_ context.Context, c faultstore.Call) error {
			time.Sleep(time.Second)
			if c.Charges[0].Plan == p {
				late.Store(strings.Clone(c.Charges[0].Key))
			}
			return c.Take()
		})
		key := []byte("alice")
		charges := []sluice.Charge{{Key: unsafe.String(&key[0], len(key)), Plan: p, Cost: 1, OnError: sluice.Deny}}
		receipts := make([]sluice.Receipt, 1)
		if err := s.Take(t.Context(), charges, receipts); err != nil {
			t.Fatal(err)
		}
		copy(key, "BOBBY")
		charges[0] = sluice.Charge{}
		time.Sleep(2 * time.Second)
		if r := receipts[0]; r.Fits || !r.Origin.Degraded() || late.Load() != "alice" || sv.Used(t, "alice", p) != 1 {
			t.Errorf("key %v, receipt %+v", late.Load(), r)
		}
	})
}

// At most MaxCalls decisions wait for the shared store, and at most as many calls hang.
func TestMaxCalls(t *testing.T) {
	t.Parallel()
	const most, callers, waves = 10, 500, 20
	for _, c := range []struct {
		name  string
		over  func(*testing.T, failover.Config, func(*testing.T, *faultstore.Store, *failover.Store))
		fault faultstore.Fault
	}{{"frozen", bubble, faultstore.Frozen}, {"deaf", foreign, faultstore.Deaf}} {
		t.Run(c.name, func(t *testing.T) {
			c.over(t, failover.Config{MaxCalls: most}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
				sv.Set(c.fault)
				p := plan(t, "100000/minute", sluice.TokenBucket)
				var waited, atOnce atomic.Int64
				var wg sync.WaitGroup
				wave := func(n int) {
					start := time.Now()
					for range n {
						wg.Go(func() {
							if r := take(t, s, "k", p, sluice.Local); !r.Origin.Degraded() || !r.Fits {
								t.Errorf("receipt %+v", r)
							}
							switch time.Since(start) {
							case 0:
								atOnce.Add(1)
							case failover.DefaultDeadline:
								waited.Add(1)
							}
						})
					}
					wg.Wait()
				}
				wave(callers)
				if waited.Load() != most || atOnce.Load() != callers-most || sv.Calls.Load() != most {
					t.Errorf("%d waited, %d did not, %d calls", waited.Load(), atOnce.Load(), sv.Calls.Load())
				}
				if st := s.Status(); st.Overflow != callers-most || st.TimedOut != most {
					t.Errorf("status %+v", st)
				}
				for range waves {
					wave(2 * most)
					time.Sleep(60 * time.Millisecond)
				}
				if n := sv.Calls.Load() + sv.Probes.Load(); c.name == "deaf" && n != most {
					t.Errorf("%d calls were made of a store that does not return, want %d", n, most)
				}
			})
		})
	}
}

// A call that its caller cancels is not a failure of the store.
func TestCancelledCallers(t *testing.T) {
	t.Parallel()
	bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
		sv.Set(faultstore.Late(func() time.Duration { return 10 * time.Millisecond }))
		p := plan(t, "100000/minute", sluice.TokenBucket)
		end := steadily(100*time.Microsecond, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			err := s.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		end()
		time.Sleep(time.Second)
		if st := s.Status(); st.Degraded() || st.TimedOut != 0 || st.Failed != 0 {
			t.Errorf("status %+v", st)
		}
		if n := sv.Calls.Load(); n < 9000 {
			t.Errorf("only %d of 10,000 calls have reached the store", n)
		}
	})
}

// closing is a store that can be closed.
type closing struct {
	failover.Shared
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return nil
}

// A service starts without its shared store, and uses it as soon as it can be opened.
func TestOpenLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sv := faultstore.New(memory.New())
		shared := &closing{Shared: sv}
		var there atomic.Bool
		var tries atomic.Int64
		pending := failover.OpenLater(func(context.Context) (failover.Shared, error) {
			tries.Add(1)
			if !there.Load() {
				return nil, errors.New("no route to host")
			}
			return shared, nil
		})
		s := open(pending, failover.Config{})
		if !s.Status().Degraded() {
			t.Error("a store that has not been opened is in use")
		}
		p := plan(t, "10/day", sluice.FixedWindow)
		for range 4 {
			if r := take(t, s, "k", p, sluice.Local); !r.Origin.Degraded() || !r.Fits {
				t.Errorf("without a store: %+v", r)
			}
			time.Sleep(3 * time.Second)
		}
		st := s.Status()
		if pending.Ready() || !st.Degraded() || tries.Load() < 8 || tries.Load() > 20 || !strings.Contains(st.Shards[0].LastError.Error(), "no route to host") {
			t.Errorf("after %d tries: %+v", tries.Load(), st)
		}
		there.Store(true)
		until(t, 4*time.Second, "the store is used", func() bool { return pending.Ready() && !s.Status().Degraded() })
		until(t, time.Second, "all debts are written back", func() bool { return s.Status().Owing == 0 })
		if r := take(t, s, "k", p, sluice.Local); r.Origin.Degraded() || r.Used != 5 {
			t.Errorf("with the store: %+v, want 5 units used", r)
		}
		s.Close()
		if err := pending.Close(); err != nil || !shared.closed.Load() {
			t.Errorf("closed %v: %v", shared.closed.Load(), err)
		}
	})
}

// A store that was never opened can be closed, and an opened store returns its shards and instances.
func TestOpenLaterPassesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		never := failover.OpenLater(func(ctx context.Context) (failover.Shared, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		if _, err := never.Heartbeat(t.Context(), "me"); err == nil || never.Shard("2") != 0 {
			t.Errorf("before the store is open: %v", err)
		}
		if err := never.Close(); err != nil {
			t.Error(err)
		}
		sv := faultstore.New(memory.New())
		sv.Others.Store(3)
		sv.Split(twoParts)
		opened := failover.OpenLater(func(context.Context) (failover.Shared, error) { return sv, nil })
		defer opened.Close()
		synctest.Wait()
		if n, err := opened.Heartbeat(t.Context(), "me"); n != 4 || err != nil || opened.Shard("2") != 1 || opened.Shard("1") != 0 {
			t.Errorf("%d instances, %v, shards %d and %d", n, err, opened.Shard("1"), opened.Shard("2"))
		}
	})
}

// many returns n calls of one key each, which have each OnError in turn.
func many(p *sluice.Plan, n int) []sluice.TakeCall {
	calls := make([]sluice.TakeCall, n)
	for i := range calls {
		on := sluice.OnError(i % 3)
		calls[i].Charges = []sluice.Charge{{Key: fmt.Sprint("k", i%3), Plan: p, Cost: 1, OnError: on}}
		calls[i].Receipts = make([]sluice.Receipt, 1)
	}
	return calls
}

// checkUnavailable checks the receipts of calls from many while the shared store is unavailable. The local allowance
// admits most charges.
func checkUnavailable(t *testing.T, calls []sluice.TakeCall, most int) {
	t.Helper()
	for i, c := range calls {
		r, on := c.Receipts[0], sluice.OnError(i%3)
		fits := on == sluice.Allow || on == sluice.Local && i/3 < most
		if c.Err != nil || !r.Origin.Degraded() || r.Fits != fits {
			t.Fatalf("Take %d with %v: %+v, %v; want %v", i, on, r, c.Err, fits)
		}
	}
}

// If the store answers, it decides a list. If it does not, each Take of the list is decided by its OnError, within one
// deadline. A list that fails is a single failure, which does not open the circuit, but further failures do.
func TestEach(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		bubble(t, failover.Config{}, func(t *testing.T, sv *faultstore.Store, s *failover.Store) {
			p, fresh := plan(t, "100/day", sluice.TokenBucket), plan(t, "50/day", sluice.FixedWindow)
			calls := many(p, 999)
			s.TakeEach(t.Context(), calls)
			for i, c := range calls {
				if r := c.Receipts[0]; c.Err != nil || r.Origin.Degraded() || r.Fits != (i/3 < 100) {
					t.Fatalf("Take %d: %+v, %v", i, r, c.Err)
				}
			}
			sv.Set(f)
			began := time.Now()
			calls = many(fresh, 999)
			s.TakeEach(t.Context(), calls)
			if took := time.Since(began); took > failover.DefaultDeadline {
				t.Errorf("%s: a list took %v", name, took)
			}
			checkUnavailable(t, calls, 50)
			if s.Status().Degraded() {
				t.Errorf("%s: a single list has opened the circuit", name)
			}
			for range 20 {
				time.Sleep(50 * time.Millisecond)
				s.TakeEach(t.Context(), many(p, 3))
			}
			if !s.Status().Degraded() {
				t.Errorf("%s: the circuit is closed after a second of failures", name)
			}
			asked := sv.Calls.Load()
			s.TakeEach(t.Context(), many(p, 30))
			if n := sv.Calls.Load() - asked; n != 0 {
				t.Errorf("%s: %d calls of an unavailable store", name, n)
			}
		})
	}
}
