package memory_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

func TestVectors(t *testing.T) {
	t.Parallel()
	storetest.RunVectors(t, "../testdata/vectors", func(*testing.T) storetest.TimedStore { return memory.New() })
}

// The store keeps its contract with the minimum of memory, and with so many keys that the clock is read first.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, newStore := range map[string]func(t *testing.T) sluice.Store{
		"default":     func(*testing.T) sluice.Store { return memory.New() },
		"smallest":    func(*testing.T) sluice.Store { return memory.NewSize(0) },
		"clock first": func(t *testing.T) sluice.Store { return memory.NewFilled(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, newStore)
		})
	}
}

func TestConformanceTimed(t *testing.T) {
	t.Parallel()
	storetest.RunTimed(t, func(*testing.T) storetest.TimedStore { return memory.New() })
}

func TestDifferential(t *testing.T) {
	t.Parallel()
	storetest.Differential(t, memory.NewSeeded(t, memory.Config{}), new(storetest.Model), memory.Steps(4_000), 1)
}

func TestAllocations(t *testing.T) {
	s := memory.New()
	var keys [5000]string
	for i := range keys {
		keys[i] = "key " + strconv.Itoa(i)
	}
	for _, tt := range limits {
		if strings.HasSuffix(tt.name, "log") || tt.name == "odd bucket" {
			continue
		}
		p := plan(t, tt.limit, tt.algorithm)
		n := 0
		take := func(charges ...sluice.Charge) float64 {
			var receipts [3]sluice.Receipt
			return testing.AllocsPerRun(len(keys)-2, func() {
				n++
				for i := range charges {
					charges[i].Key = keys[(n+i*i)%len(keys)]
				}
				if err := s.Take(context.Background(), charges, receipts[:len(charges)]); err != nil {
					t.Fatal(err)
				}
			})
		}
		c := sluice.Charge{Plan: p, Cost: 1}
		if a := take(c); a != 0 {
			t.Errorf("%s: %v allocations for a new key", tt.name, a)
		}
		if a := take(c); a != 0 {
			t.Errorf("%s: %v allocations for a known key", tt.name, a)
		}
		if a := take(c, c, c); a != 0 {
			t.Errorf("%s: %v allocations for three charges", tt.name, a)
		}
	}
}

// TestClock checks that the store's clock starts at the wall clock, so that windows are aligned to the calendar,
// and then follows elapsed time.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := memory.New(), plan(t, "1/minute", sluice.FixedWindow)
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
		takes := newTaker(s, p)
		takes.one("a")
		takes.one("a")
		if r := takes.receipts[0]; takes.admitted != 1 || r.Now != time.Now().UnixMicro() {
			t.Errorf("%d of two were admitted at %d, want 1 at %d", takes.admitted, r.Now, time.Now().UnixMicro())
		}
		time.Sleep(30*time.Second - time.Microsecond)
		if takes.one("a"); takes.admitted != 1 {
			t.Error("one more was admitted in the last microsecond of the minute")
		}
		time.Sleep(time.Microsecond)
		if takes.one("a"); takes.admitted != 2 {
			t.Error("none was admitted in the first microsecond of the next minute")
		}
	})
}

// Arguments that break the contract are errors.
func TestBadArguments(t *testing.T) {
	s, p := memory.New(), plan(t, "1/minute", sluice.TokenBucket)
	for _, test := range []struct {
		now int64
		p   *sluice.Plan
	}{{-1, p}, {1 << 52, p}, {midday, &sluice.Plan{}}} { // before 1970, after 2112, and a plan that is not from NewPlan
		if err := s.TakeAt(t.Context(), test.now, []sluice.Charge{{Plan: test.p}}, make([]sluice.Receipt, 1)); err == nil {
			t.Errorf("at %d, %+v: no error", test.now, test.p)
		}
	}
}

// TestManyPlans uses more plans than cells can distinguish, and checks that all of them count.
func TestManyPlans(t *testing.T) {
	t.Parallel()
	s := memory.New()
	const plans = 1<<16 + 500
	for i := range plans {
		p := plantest.Of(t, sluice.Limit{Count: 1, Period: time.Hour, Burst: int64(i + 1)})
		// All plans have one fingerprint, and two plans share each key.
		if key := strconv.Itoa(i / 2 * 2); !takeAt(t, s, midday, key, p, 1) {
			t.Fatalf("plan %d: denied", i)
		}
	}
	two, three := plan(t, "1/hour burst 2", sluice.TokenBucket), plan(t, "1/hour burst 3", sluice.TokenBucket)
	for i := 2; i < plans; i += 34 {
		if takeAt(t, s, midday, strconv.Itoa(i), two, 1) || !takeAt(t, s, midday, strconv.Itoa(i), three, 1) {
			t.Fatalf("key %d: want two units taken", i)
		}
	}
}

// TestLinearizable checks that concurrent Takes of some keys have the results of Takes one after the other, while
// tables grow and cells move, with few keys and with so many that the clock is read first.
func TestLinearizable(t *testing.T) {
	for name, newStore := range map[string]func() *memory.Store{
		"few keys":  func() *memory.Store { return memory.NewSize(256 << 10) },
		"many keys": func() *memory.Store { return memory.NewFilled(t) },
	} {
		for round := range 6 {
			bucket := "20000/second burst 5"
			if round >= 4 {
				bucket = "19937/second burst 5" // fits no cell
			}
			subjects := []sluice.Charge{
				{Key: "bucket", Plan: plantest.Plan(t, bucket)},
				{Key: "window", Plan: plantest.Plan(t, "5/200us as fixed_window")},
				{Key: "counter", Plan: plantest.Plan(t, "5/200us as sliding_window_counter")},
				{Key: "log", Plan: plantest.Plan(t, "1000/day as sliding_window_log_exact")},
			}
			store := newStore()
			var others sync.WaitGroup
			var done atomic.Bool
			others.Go(func() { // adds new keys
				others := newTaker(store, plantest.Plan(t, "1/5us"))
				for i := 0; !done.Load(); i++ {
					others.one(fmt.Sprint("other ", i))
				}
			})
			least := -int64(2 * (round % 2)) // every other round has no refunds
			plantest.Linear{Ordered: least == 0, MetersLate: name == "many keys", Least: least}.Check(t, store, subjects, 8, 120, uint64(round))
			done.Store(true)
			others.Wait()
			if store.Stats().Evicted != 0 {
				t.Error("premise: something was evicted")
			}
		}
	}
}
