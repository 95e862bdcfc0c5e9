package memory_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

func TestVectors(t *testing.T) {
	storetest.RunVectors(t, "../testdata/vectors", func(*testing.T) storetest.TimedStore { return memory.New() })
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) sluice.Store { return memory.New() })
}

func TestConformanceTimed(t *testing.T) {
	storetest.RunTimed(t, func(*testing.T) storetest.TimedStore { return memory.New() })
}

func TestDifferential(t *testing.T) {
	storetest.Differential(t, memory.NewSeeded(t, memory.Config{}), new(storetest.Model), memory.Steps(10_000), 1)
}

// TestConformanceSmall runs the conformance suite in the least memory that there is.
func TestConformanceSmall(t *testing.T) {
	storetest.Run(t, func(*testing.T) sluice.Store { return memory.NewSize(0) })
}

// TestOverlappingTakes has many callers take the same keys in orders of their own. Each
// take has three charges that fit and one that lets only some of them pass.
func TestOverlappingTakes(t *testing.T) {
	const callers, rounds, keys, admitted = 16, 200, 24, 1000
	s := memory.NewSize(0) // few stripes, so that takes have some in common
	plans := []*sluice.Plan{
		plan(t, "1000000/day", sluice.TokenBucket),
		plan(t, "1000000/day", sluice.FixedWindow),
		plan(t, "1000000/day", sluice.SlidingWindowLog),
	}
	gate := plan(t, strconv.Itoa(admitted)+"/day", sluice.TokenBucket)
	var took [keys]atomic.Int64
	var passed atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(caller)))
			for range rounds {
				picked := rng.Perm(keys)[:3]
				charges := []sluice.Charge{{Key: "gate", Plan: gate, Cost: 1}}
				for _, k := range picked {
					charges = append(charges, sluice.Charge{Key: strconv.Itoa(k), Plan: plans[k%len(plans)], Cost: int64(k + 1)})
				}
				rng.Shuffle(len(charges), func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
				receipts := make([]sluice.Receipt, len(charges))
				if err := s.TakeAt(t.Context(), midday, charges, receipts); err != nil {
					t.Error(err)
					return
				}
				if !sluice.Admitted(charges, receipts) {
					continue
				}
				passed.Add(1)
				for _, k := range picked {
					took[k].Add(int64(k + 1))
				}
			}
		})
	}
	wg.Wait()
	if n := passed.Load(); n != admitted {
		t.Errorf("%d takes passed, want %d", n, admitted)
	}
	for k := range took {
		p := plans[k%len(plans)]
		receipts := make([]sluice.Receipt, 1)
		if err := s.TakeAt(t.Context(), midday, []sluice.Charge{{Key: strconv.Itoa(k), Plan: p}}, receipts); err != nil {
			t.Fatal(err)
		}
		if used := p.Capacity - p.Decide(0, receipts[0]).Remaining; used != took[k].Load() {
			t.Errorf("key %d: %d units are used, and %d were admitted", k, used, took[k].Load())
		}
	}
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

// TestClock holds that the store's clock starts at the wall's, so that windows begin
// where the calendar says, and goes on with the time that passes.
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

func TestBadArguments(t *testing.T) {
	s, p := memory.New(), plan(t, "1/minute", sluice.TokenBucket)
	for name, take := range map[string]func() error{
		"before 1970": func() error {
			return s.TakeAt(t.Context(), -1, []sluice.Charge{{Plan: p}}, make([]sluice.Receipt, 1))
		},
		"after 2112": func() error {
			return s.TakeAt(t.Context(), 1<<52, []sluice.Charge{{Plan: p}}, make([]sluice.Receipt, 1))
		},
		"literal plan": func() error {
			return s.Take(t.Context(), []sluice.Charge{{Plan: &sluice.Plan{}}}, make([]sluice.Receipt, 1))
		},
		"no receipts": func() error { return s.Take(t.Context(), []sluice.Charge{{Plan: p}}, nil) },
		"no plan":     func() error { return s.Take(t.Context(), []sluice.Charge{{}}, make([]sluice.Receipt, 1)) },
	} {
		if err := take(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := s.Take(t.Context(), nil, nil); err != nil {
		t.Errorf("no charges: %v", err)
	}
}

// TestManyPlans has more plans than cells can tell apart. Each of them counts.
func TestManyPlans(t *testing.T) {
	s := memory.New()
	const plans = 1<<16 + 500
	for i := range plans {
		p, err := sluice.NewPlan(sluice.Limit{Count: 1, Period: time.Hour, Burst: int64(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		// All of them have one fingerprint, and each two of them a key.
		if key := strconv.Itoa(i / 2 * 2); !takeAt(t, s, midday, key, p, 1) {
			t.Fatalf("plan %d: refused", i)
		}
	}
	two, three := plan(t, "1/hour burst 2", sluice.TokenBucket), plan(t, "1/hour burst 3", sluice.TokenBucket)
	for i := 2; i < plans; i += 34 {
		if takeAt(t, s, midday, strconv.Itoa(i), two, 1) || !takeAt(t, s, midday, strconv.Itoa(i), three, 1) {
			t.Fatalf("key %d has not two units taken", i)
		}
	}
}
