package failover_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) sluice.Store {
		// Nothing may look like a slow store because the machine is busy.
		s := failover.New(failover.Bulkhead(memory.New(), 0), failover.Config{Deadline: time.Minute, Logger: quiet()})
		t.Cleanup(s.Close)
		return s
	})
}

// locally asks for a local share whatever the charges say.
type locally struct{ sluice.Store }

func (l locally) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	local := append([]sluice.Charge(nil), charges...)
	for i := range local {
		local[i].OnError = sluice.Local
	}
	return l.Store.Take(ctx, local, receipts)
}

// One instance without a shared store is a store like any other.
func TestConformanceAlone(t *testing.T) {
	storetest.Run(t, func(t *testing.T) sluice.Store {
		sv := newServer()
		sv.set(unsent)
		s := failover.New(failover.Bulkhead(sv, 0), failover.Config{Logger: quiet()})
		t.Cleanup(s.Close)
		return locally{s}
	})
}

func TestHealthy(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "3/minute", sluice.TokenBucket)
		for i := range 5 {
			r := take(t, s, "k", p, sluice.Local)
			if r.Origin.Degraded() || r.Fits != (i < 3) {
				t.Errorf("take %d: %+v", i, r)
			}
		}
		if st := s.Status(); st.Shared != 5 || st.Local != 0 || st.Owing != 0 || sv.calls.Load() != 5 {
			t.Errorf("status %+v after 5 decisions, %d calls", st, sv.calls.Load())
		}
	})
}

func TestContract(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		p := plan(t, "3/minute", sluice.TokenBucket)
		twice := []sluice.Charge{{Key: "a", Plan: p, Cost: 1}, {Key: "a", Plan: p, Cost: 1}}
		if err := s.Take(t.Context(), twice, make([]sluice.Receipt, 2)); !errors.Is(err, sluice.ErrDuplicateCharge) {
			t.Errorf("two charges of one state: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Take(gone, twice[:1], make([]sluice.Receipt, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that is gone: %v", err)
		}
		if n := sv.calls.Load(); n != 0 {
			t.Errorf("%d calls of the shared store for nothing", n)
		}
	})
}

// A store that does not care about contexts holds nobody.
func TestDeadline(t *testing.T) {
	for name, f := range map[string]fault{"frozen": frozen, "deaf": deaf} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sv := newServer()
				s := failover.New(failover.Bulkhead(sv, 0), failover.Config{Logger: quiet()})
				defer time.Sleep(2 * time.Hour) // until the deaf have answered
				defer s.Close()
				sv.set(f)
				p := plan(t, "3/minute", sluice.TokenBucket)
				start := time.Now()
				r := take(t, s, "k", p, sluice.Local)
				if took := time.Since(start); took != failover.DefaultDeadline || !r.Origin.Degraded() || !r.Fits {
					t.Errorf("after %v: %+v", took, r)
				}
				if st := s.Status(); st.TimedOut != 1 || st.Local != 1 || st.Shared != 0 {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// An answer that comes too late finds nothing of the caller's.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer()
		s := failover.New(failover.Bulkhead(sv, 0), failover.Config{Logger: quiet()})
		defer time.Sleep(2 * time.Second) // until all have answered
		defer s.Close()
		var late atomic.Value
		p := plan(t, "3/day", sluice.FixedWindow)
		sv.set(func(_ context.Context, charges []sluice.Charge, take func() error) error {
			time.Sleep(time.Second)
			if charges[0].Plan == p {
				late.Store(strings.Clone(charges[0].Key))
			}
			return take()
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
		if r := receipts[0]; r.Fits || !r.Origin.Degraded() || late.Load() != "alice" || sv.used(t, "alice", p) != 1 {
			t.Errorf("key %v, receipt %+v", late.Load(), r)
		}
	})
}

// What a store that does not care about contexts holds on to is bounded, and is no
// longer the caller's.
func TestCap(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		t.Run(fmt.Sprintf("foreign=%v", foreign), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most, callers = 10, 500
				sv := newServer()
				var shared failover.Shared = prompt{sv}
				f := fault(frozen)
				if foreign {
					shared, f = failover.Bulkhead(sv, most), deaf
				}
				s := failover.New(shared, failover.Config{MaxCalls: most, Logger: quiet()})
				defer time.Sleep(2 * time.Hour)
				defer s.Close()
				sv.set(f)
				p := plan(t, "1000/minute", sluice.TokenBucket)
				var waited, atOnce atomic.Int64
				var wg sync.WaitGroup
				start := time.Now()
				for range callers {
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
				if waited.Load() != most || atOnce.Load() != callers-most || sv.calls.Load() != most {
					t.Errorf("%d waited, %d did not, %d calls", waited.Load(), atOnce.Load(), sv.calls.Load())
				}
				if st := s.Status(); st.Overflow != callers-most || st.TimedOut != most {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// Calls that are never answered hold on to no more than that, however long it lasts.
func TestCapOfTheDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 5
		sv := newServer()
		s := failover.New(failover.Bulkhead(sv, most), failover.Config{MaxCalls: most, Logger: quiet()})
		defer time.Sleep(2 * time.Hour)
		defer s.Close()
		sv.set(deaf)
		p := plan(t, "1000/minute", sluice.TokenBucket)
		var wg sync.WaitGroup
		for range 100 {
			for range 10 {
				wg.Go(func() { take(t, s, "k", p, sluice.Local) })
			}
			time.Sleep(60 * time.Millisecond)
		}
		wg.Wait()
		if n := sv.calls.Load() + sv.probes.Load(); n != most {
			t.Errorf("%d calls are held on to, want %d", n, most)
		}
	})
}

func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sv := newServer()
		s := failover.New(failover.Bulkhead(sv, 0), failover.Config{Logger: quiet()})
		defer s.Close()
		sv.set(func(context.Context, []sluice.Charge, func() error) error { panic("boom") })
		if r := take(t, s, "k", plan(t, "1/minute", sluice.TokenBucket), sluice.Local); !r.Origin.Degraded() || !r.Fits {
			t.Errorf("receipt %+v", r)
		}
		if st := s.Status(); st.Failed != 1 || !strings.Contains(st.Shards[0].LastError.Error(), "boom") {
			t.Errorf("status %+v", st)
		}
	})
}

// A caller that goes away is not a failure of the store.
func TestCancelledCallers(t *testing.T) {
	bubble(t, failover.Config{}, func(t *testing.T, sv *server, s *failover.Store) {
		sv.set(func(ctx context.Context, charges []sluice.Charge, take func() error) error {
			select {
			case <-time.After(10 * time.Millisecond):
				return take()
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		p := plan(t, "100000/minute", sluice.TokenBucket)
		var wg sync.WaitGroup
		var wrong atomic.Int64
		for range 10000 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
				defer cancel()
				err := s.Take(ctx, []sluice.Charge{{Key: "k", Plan: p, Cost: 1}}, make([]sluice.Receipt, 1))
				if !errors.Is(err, context.DeadlineExceeded) && err != nil {
					wrong.Add(1)
				}
			})
			time.Sleep(100 * time.Microsecond)
		}
		wg.Wait()
		time.Sleep(time.Second)
		st := s.Status()
		if wrong.Load() != 0 || st.Degraded() || st.TimedOut != 0 || st.Failed != 0 {
			t.Errorf("%d wrong answers, status %+v", wrong.Load(), st)
		}
		if sv.calls.Load() < 9000 {
			t.Errorf("only %d of 10,000 calls have reached the store", sv.calls.Load())
		}
	})
}

func TestNothingIsLeft(t *testing.T) {
	stacks := func() string {
		buf := make([]byte, 1<<20)
		return string(buf[:runtime.Stack(buf, true)])
	}
	sv := newServer()
	sv.set(refused)
	p := plan(t, "10/minute", sluice.TokenBucket)
	for range 20 {
		s := failover.New(failover.Bulkhead(sv, 0), failover.Config{Logger: quiet()})
		for range 100 {
			take(t, s, "k", p, sluice.Local)
		}
		s.Close()
		s.Close()
		if left := stacks(); strings.Contains(left, "failover.(*Store)") || strings.Contains(left, "failover.(*shard)") {
			t.Fatalf("goroutines are left:\n%s", left)
		}
		if r := take(t, s, "k", p, sluice.Allow); !r.Fits {
			t.Errorf("after Close: %+v", r)
		}
	}
}
