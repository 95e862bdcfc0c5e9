package memory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

// A charge must not drop the state that another charge of the same Take has found.
func TestTakeKeepsWhatItHolds(t *testing.T) {
	t.Parallel()
	meter, err := sluice.NewPlan(sluice.Limit{Count: 9973, Period: 60e9, Burst: 3}) // does not fit in a cell
	if err != nil {
		t.Fatal(err)
	}
	log := plantest.Of(t, sluice.Limit{Count: 3, Period: 1e9, Algorithm: sluice.SlidingWindowLog})
	for _, p := range []*sluice.Plan{meter, log} {
		for others := range 40 {
			s, now := NewSeededSize(t, 0), int64(1e15)
			take := func(keys ...string) bool {
				charges, receipts := make([]sluice.Charge, len(keys)), make([]sluice.Receipt, len(keys))
				for i, k := range keys {
					charges[i] = sluice.Charge{Key: k, Plan: p, Cost: 3}
				}
				if err := s.TakeAt(t.Context(), now, charges, receipts); err != nil {
					t.Fatal(err)
				}
				return sluice.Admitted(charges, receipts)
			}
			stripe := func(key string) uint64 { return s.hash(&sluice.Charge{Key: key, Plan: p}) >> stripeShift }
			beside := func(name string) string { // in the stripe of hot
				for stripe(name) != stripe("hot") {
					name += "'"
				}
				return name
			}
			take("hot")
			for i := range others {
				take(beside(fmt.Sprint("other", i)))
			}
			now += 60e6 // all states have drained, and none was dropped yet
			if !take(beside("new"), "hot") {
				t.Fatal("no room was found, although there is room")
			}
			if take("hot") {
				t.Errorf("%v, with %d others: two bursts were admitted at the same time", p.Limit, others)
			}
			if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
				t.Errorf("%v, with %d others: the store counts %d bytes in the overflow, want %d", p.Limit, others, got, want)
			}
		}
	}
}

// TestOverflowDifferential makes Takes of several charges. All states are in the overflow, in few stripes, and drain
// all the time. With prime counts, the numbers of meters are too large for cells.
func TestOverflowDifferential(t *testing.T) {
	t.Parallel()
	var plans []*sluice.Plan
	for i, a := range sluice.Algorithms() {
		l := sluice.Limit{Count: []int64{9973, 10007, 65537}[i%3], Period: time.Minute, Algorithm: a}
		if a <= sluice.GCRA {
			l.Burst = 3
		} else {
			// One for each kind of log.
			logs := []sluice.Limit{
				{Count: 3, Period: time.Millisecond, Algorithm: sluice.SlidingWindowLog},
				{Count: 5000, Period: time.Millisecond, Algorithm: sluice.SlidingWindowLog},
				{Count: 3, Period: time.Millisecond, Algorithm: sluice.SlidingWindowLogExact},
			}
			l = logs[i%3]
		}
		p, err := sluice.NewPlan(l)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	plans = append(plans, inFlight(t, 3), plantest.Distinct(t, "3/20ms"))
	s, rng := NewSeededSize(t, 0), rand.New(rand.NewPCG(17, 17))
	twins := plantest.Twins{Store: s, Like: new(storetest.Model)}
	now, most := int64(1_700_000_000_000_000), 0
	for n := range 10_000 {
		charges := make([]sluice.Charge, 1+rng.IntN(5))
		for i, k := range rng.Perm(120)[:len(charges)] {
			cost := []int64{1, 3, 3, 3, -1, 0, sluice.All}[rng.IntN(7)]
			if plans[k%len(plans)].Capacity == 5000 && cost > 0 {
				cost *= 1600
			}
			charges[i] = sluice.Charge{Key: fmt.Sprint(k), Plan: plans[k%len(plans)], Permit: rng.Uint64N(5), Cost: cost}
			if cost < 0 && rng.IntN(3) == 0 {
				charges[i].Until = now + rng.Int64N(3) - 1
			}
			if charges[i].Plan.Kernel.Permits() {
				charges[i].Cost = min(cost, 1)
			}
		}
		twins.At(t, now, charges...)
		if got, want := s.overflow.bytes.Load(), s.countOverflow(); got != want {
			t.Fatalf("step %d: the store counts %d bytes in the overflow, want %d", n, got, want)
		}
		if sa := s.stripes[0].overflow; sa != nil {
			most = max(most, sa.n)
		}
		if rng.IntN(4) == 0 {
			now += rng.Int64N(3000)
		}
		if rng.IntN(40) == 0 {
			now += 50_000
		}
		if rng.IntN(1000) == 0 {
			now += 9e6
		}
	}
	if most <= minSweep || s.evicted.Load() > 0 {
		t.Errorf("premise: a stripe had %d records at most, and %d were evicted, want more than %d and none", most, s.evicted.Load(), minSweep)
	}
}

// countOverflow computes the expected overflow.bytes.
func (s *Store) countOverflow() (bytes int64) {
	for i := range s.stripes {
		st := &s.stripes[i]
		if st.overflow != nil {
			bytes += overflowTableBytes + int64(cap(st.overflow.entries))*int64(unsafe.Sizeof(entry{}))
		}
		for a := range st.eachRecord() {
			bytes += a.bytes()
		}
	}
	return bytes
}

// TestOneHash checks that a Take of several keys with the same hash, which share a state, returns.
func TestOneHash(t *testing.T) {
	t.Parallel()
	s := NewSize(0)
	var charges []sluice.Charge
	for i, a := range sluice.Algorithms() {
		p := plantest.Of(t, sluice.Limit{Count: 1000, Period: time.Hour, Algorithm: a})
		charges = append(charges, sluice.Charge{Key: fmt.Sprint("a", i), Plan: p, Cost: 1}, sluice.Charge{Key: fmt.Sprint("b", i), Plan: p, Cost: 1})
	}
	for i := range 2 {
		at := i * len(charges) / 2
		charges = slices.Insert(charges, at, sluice.Charge{Key: fmt.Sprint("places", i), Plan: inFlight(t, 3), Permit: uint64(i), Cost: 1})
	}
	receipts := make([]sluice.Receipt, len(charges))
	for i := range charges {
		for j := i + 1; j <= len(charges); j++ {
			ops := make([]op, j-i)
			for n := range ops {
				ops[n].stripe = s.stripe(0)
			}
			s.takeAll(1e15, charges[i:j], receipts[i:j], ops, make([]int32, j-i))
			if r := receipts[j-1]; r.Now != 1e15 {
				t.Fatalf("%+v", r)
			}
		}
	}
}
