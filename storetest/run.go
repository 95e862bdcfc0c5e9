package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Run checks a store against its contract, with the store's own clock. It calls the function newStore for each
// test. The store should be empty. At least, the keys of the test, which contain its name, must be unused.
func Run(t *testing.T, newStore func(t *testing.T) sluice.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s takes)
	}{
		{"all or nothing", testAllOrNothing},
		{"a denial writes nothing", testRefusal},
		{"concurrent layers", testConcurrentLayers},
		{"concurrent total", testConcurrentTotal},
		{"rate", testRate},
		{"shadow", testShadow},
		{"penalty", testPenalty},
		{"penalty of others", testPenaltyOfOthers},
		{"concurrent penalty", testConcurrentPenalty},
		{"peek and give back", testGiveBack},
		{"above the capacity", testAboveCapacity},
		{"fingerprints", testFingerprints},
		{"keys", testKeys},
		{"key is not kept", testKeyNotKept},
		{"once", testOnce},
		{"many at once", testMany},
		{"permits", testPermits},
		{"permits of another limit", testPermitsBound},
		{"permits beside limits", testPermitsBeside},
		{"permits of many", testPermitsOfMany},
		{"late", testLate},
		{"owed", testOwed},
		{"bursts of one rate", testBursts},
		{"concurrent debts", testConcurrentDebts},
		{"bad arguments", testBadArguments},
		{"ended context", testEndedContext},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, takes{t, newStore(t)})
		})
	}
}

// still returns a limit with a period so long that states do not change by themselves while a test runs. The next
// window of that length begins in the year 2052.
func still(count int64) sluice.Limit {
	return sluice.Limit{Count: count, Period: 10_000 * 24 * time.Hour}
}

func testAllOrNothing(t *testing.T, s takes) {
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		wide, narrow := t.Name()+"/wide", t.Name()+"/narrow"
		small := p.Limit
		small.Count = 3
		small.Burst = min(small.Burst, 3)
		n := plan(t, small)
		for take := range 5 {
			receipts, admitted := s.all(sluice.Charge{Key: wide, Plan: p, Cost: 2}, sluice.Charge{Key: narrow, Plan: n, Cost: 1})
			if want := take < 3; admitted != want || receipts[1].Fits != want || !receipts[0].Fits {
				t.Errorf("take %d: admitted %v, receipts %+v; want the wide charge to fit always, and the narrow one, and so the Take, 3 times", take+1, admitted, receipts)
			}
			if used, want := s.used(wide, p), min(6, int64(take+1)*2); used != want {
				t.Errorf("after take %d: %d units of the wide limit are used, want %d", take+1, used, want)
			}
		}
	})
}

func testRefusal(t *testing.T, s takes) {
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		one, two := t.Name()+"/one", t.Name()+"/two"
		s.one(one, p, 4)
		s.one(two, p, 10)
		before, _ := s.all(sluice.Charge{Key: one, Plan: p}, sluice.Charge{Key: two, Plan: p})
		for _, cost := range []int64{1, 6, 7, 10, 11, 1 << 60, -1, -3, sluice.All, 0} {
			_, admitted := s.all(sluice.Charge{Key: one, Plan: p, Cost: cost}, sluice.Charge{Key: two, Plan: p, Cost: 1})
			if admitted {
				t.Fatalf("a unit was admitted above the limit, next to a cost of %d", cost)
			}
			after, _ := s.all(sluice.Charge{Key: one, Plan: p}, sluice.Charge{Key: two, Plan: p})
			for i := range after {
				if !same(p, before[i], after[i]) {
					t.Errorf("a denied take with a cost of %d changed charge %d from %+v to %+v", cost, i, before[i], after[i])
				}
			}
		}
		fresh := t.Name() + "/fresh"
		s.all(sluice.Charge{Key: fresh, Plan: p, Cost: 1}, sluice.Charge{Key: two, Plan: p, Cost: 1})
		if used := s.used(fresh, p); used != 0 {
			t.Errorf("a denied take left %d units under a key that was empty", used)
		}
	})
}

// same reports whether two receipts of a plan show the same state. The limit of the plan comes from still. A meter has
// drained between the receipts.
func same(p *sluice.Plan, before, after sluice.Receipt) bool {
	if p.Kernel == kernel.Meter {
		elapsed := after.Now/p.Tick - before.Now/p.Tick
		return after.Used == max(0, before.Used-elapsed*p.Drain)
	}
	before.Now = after.Now
	return equal(before, after)
}

func expectUsed(t *testing.T, s takes, c sluice.Charge, want int64) {
	t.Helper()
	if used := s.used(c.Key, c.Plan); used != want {
		t.Errorf("%.60q: %d units are used, want %d", c.Key, used, want)
	}
}

func testShadow(t *testing.T, s takes) {
	each(t, still(2), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		real, shadow := t.Name()+"/real", t.Name()+"/shadow"
		large := p.Limit
		large.Count, large.Burst = 4, min(large.Burst*2, 4)
		l := plan(t, large)
		for take := range 6 {
			receipts, admitted := s.all(sluice.Charge{Key: shadow, Plan: p, Cost: 1, Shadow: true}, sluice.Charge{Key: real, Plan: l, Cost: 1})
			if admitted != (take < 4) || receipts[0].Fits != (take < 2) || receipts[1].Fits != (take < 4) {
				t.Errorf("take %d: admitted %v, receipts %+v; want the shadow to fit twice and to deny nothing, and the other charge to fit 4 times", take+1, admitted, receipts)
			}
		}
		expectUsed(t, s, sluice.Charge{Key: shadow, Plan: p}, 2)
		expectUsed(t, s, sluice.Charge{Key: real, Plan: l}, 4)
		unused := t.Name() + "/unused"
		if receipts, _ := s.all(sluice.Charge{Key: unused, Plan: p, Cost: 1, Shadow: true}, sluice.Charge{Key: real, Plan: l, Cost: 1}); !receipts[0].Fits {
			t.Errorf("a shadow that fits, in a denied take: %+v", receipts[0])
		}
		expectUsed(t, s, sluice.Charge{Key: unused, Plan: p}, 0)
	})
}

func testGiveBack(t *testing.T, s takes) {
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		for _, test := range []struct{ cost, remaining int64 }{
			{0, 10}, {-3, 10}, {7, 3}, {0, 3}, {-2, 5}, {5, 0}, {0, 0}, {1, 0}, {-11, 10},
			{sluice.All, 10}, {10, 0}, {-10, 10}, {4, 6}, {3, 3}, {-5, 8}, {sluice.All, 10}, {10, 0}, {-1 << 62, 10},
		} {
			if d := s.one(t.Name(), p, test.cost); d.Remaining != test.remaining {
				t.Fatalf("after a cost of %d, %d remain, want %d", test.cost, d.Remaining, test.remaining)
			}
		}
		if d := s.one(t.Name(), p, 0); d.ResetAfter != 0 || d.RetryAfter != 0 {
			t.Errorf("the decision, although nothing is used, is %+v", d)
		}
	})
}

func testAboveCapacity(t *testing.T, s takes) {
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		for _, cost := range []int64{11, 1 << 40, 1<<53 + 1, 1<<63 - 1} {
			if d := s.one(t.Name(), p, cost); d.Allowed || d.RetryAfter != sluice.Never || d.Remaining != 10 {
				t.Errorf("a cost of %d of 10: %+v; want a denial that never fits, and 10 remaining", cost, d)
			}
		}
		if d := s.one(t.Name(), p, 10); !d.Allowed {
			t.Errorf("a cost of the whole capacity: %+v", d)
		}
	})
}

func testFingerprints(t *testing.T, s takes) {
	var charges []sluice.Charge
	for _, l := range []sluice.Limit{
		{Count: 5, Period: 100 * 24 * time.Hour},
		{Count: 5, Period: 101 * 24 * time.Hour},
		{Count: 5, Period: 10_000 * 24 * time.Hour, Algorithm: sluice.FixedWindow},
		{Count: 5, Period: 10_001 * 24 * time.Hour, Algorithm: sluice.FixedWindow},
		{Count: 5, Period: 10_000 * 24 * time.Hour, Algorithm: sluice.SlidingWindowCounter},
		{Count: 5, Period: 10_000 * 24 * time.Hour, Algorithm: sluice.SlidingWindowLog},
		{Count: 5, Period: 10_001 * 24 * time.Hour, Algorithm: sluice.SlidingWindowLog},
		{Count: kernel.FineLogCount + 1, Period: 10_000 * 24 * time.Hour, Algorithm: sluice.SlidingWindowLog},
		{Count: 5, Period: 10_000 * 24 * time.Hour, Algorithm: sluice.SlidingWindowLogExact},
	} {
		charges = append(charges, sluice.Charge{Key: t.Name(), Plan: plan(t, l), Cost: int64(len(charges)%5 + 1)})
	}
	if _, admitted := s.all(charges...); !admitted {
		t.Error("limits of different meaning under one key are not kept apart")
	}
	for _, c := range charges {
		expectUsed(t, s, c, c.Cost)
	}
	// A change of the burst keeps the units used.
	small, large := still(5), still(5)
	small.Burst, large.Burst = 5, 8
	s.one(t.Name()+"/burst", plan(t, small), 3)
	if d := s.one(t.Name()+"/burst", plan(t, large), 0); d.Remaining != 5 {
		t.Errorf("after the burst was raised from 5 to 8 with 3 used, %d remain, want 5", d.Remaining)
	}
	s.one(t.Name()+"/burst", plan(t, large), 4)
	if d := s.one(t.Name()+"/burst", plan(t, small), 1); d.Allowed || d.Remaining != 0 {
		t.Errorf("after the burst was lowered from 8 to 5 with 7 used: %+v; want a denial, and none remaining", d)
	}
}

func testKeys(t *testing.T, s takes) {
	p := plan(t, still(100))
	mega := strings.Repeat("k", 1<<20)
	keys := []string{
		"a", "A", "a ", " a", "a\x00", "a\x00b", "\x00", "a\n", "a\r\n", "{a}", "{", "}", "{}", "{a}b", "a{b}", "{{a}}",
		"a:b", "a::b", ":", "a/b", "a%2Fb", "a%00", "%", "a!b", "a*", "a?b", "[a]", "\"a\"", "'a'", "a|b", "a,b", "$a", "\\", "é", "e\u0301",
		"\xff", "\xfe", "\xff\xff", "\xc3", "\xed\xa0\x80", "\ufffd", mega, mega + "a", "a" + mega, strings.Repeat("k", 128), strings.Repeat("k", 129),
	}
	for i, key := range keys {
		s.one(t.Name()+key, p, int64(i+1))
	}
	for i, key := range keys {
		expectUsed(t, s, sluice.Charge{Key: t.Name() + key, Plan: p}, int64(i+1))
	}
	empty := s.one("", p, 0).Remaining
	if d := s.one("", p, 1); !d.Allowed || d.Remaining != empty-1 {
		t.Errorf("the empty key is not counted: %+v", d)
	}
	s.one("", p, sluice.All)
}

// testKeyNotKept reuses the memory of keys, like a caller that builds its keys in a buffer.
func testKeyNotKept(t *testing.T, s takes) {
	each(t, still(100), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		buffer := []byte(t.Name() + "/0")
		for i := range 50 {
			buffer[len(buffer)-1] = byte('0' + i)
			s.one(unsafe.String(unsafe.SliceData(buffer), len(buffer)), p, int64(i+1))
		}
		for i := range 50 {
			expectUsed(t, s, sluice.Charge{Key: t.Name() + "/" + string(rune('0'+i)), Plan: p}, int64(i+1))
		}
	})
}

func testBadArguments(t *testing.T, s takes) {
	p, gcra := plan(t, still(5)), still(5)
	gcra.Algorithm = sluice.GCRA
	key := t.Name()
	good := sluice.Charge{Key: key, Plan: p, Cost: 1}
	many := make([]sluice.Charge, 40)
	for i := range many {
		many[i] = sluice.Charge{Key: fmt.Sprint(key, i), Plan: p, Cost: 1}
	}
	for _, test := range []struct {
		name    string
		charges []sluice.Charge
		room    int
		want    error
	}{
		{"no plan", []sluice.Charge{{Key: key, Cost: 1}}, 1, sluice.ErrUsage},
		{"a plan of zeros", []sluice.Charge{{Key: key, Plan: new(sluice.Plan), Cost: 1}}, 1, sluice.ErrUsage},
		{"no plan of two", []sluice.Charge{good, {Key: key, Cost: 1}}, 2, sluice.ErrUsage},
		{"a plan of zeros of two", []sluice.Charge{good, {Key: key, Plan: new(sluice.Plan), Cost: 1}}, 2, sluice.ErrUsage},
		{"too few receipts", []sluice.Charge{good}, 0, sluice.ErrUsage},
		{"too many receipts", []sluice.Charge{good}, 2, sluice.ErrUsage},
		{"the same charge twice", []sluice.Charge{good, good}, 2, sluice.ErrDuplicateCharge},
		{"the same state twice", []sluice.Charge{good, {Key: key, Plan: plan(t, gcra), Shadow: true}}, 2, sluice.ErrDuplicateCharge},
		{"no plan among many", append(many, sluice.Charge{Key: key}), 41, sluice.ErrUsage},
		{"the same charge twice among many", append(many, many[3]), 41, sluice.ErrDuplicateCharge},
	} {
		err := s.store.Take(t.Context(), test.charges, make([]sluice.Receipt, test.room))
		if !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
	}
	expectUsed(t, s, good, 0)
	expectUsed(t, s, many[3], 0)
	if err := s.store.Take(t.Context(), nil, nil); err != nil {
		t.Errorf("no charges: %v", err)
	}
}

// testEndedContext calls Take with contexts that end. It reuses the arguments as soon as Take has returned, so that
// the race detector finds a store that still uses them.
func testEndedContext(t *testing.T, s takes) {
	p := plan(t, still(1000))
	counted, unknown := int64(0), int64(0)
	charges, receipts := make([]sluice.Charge, 1), make([]sluice.Receipt, 1)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%3)*20*time.Microsecond)
		if i%4 == 0 {
			cancel()
		}
		charges[0] = sluice.Charge{Key: t.Name(), Plan: p, Cost: 1}
		copy(receipts, spoilt(1))
		switch err := s.store.Take(ctx, charges, receipts); {
		case err != nil:
			unknown++
		case receipts[0].Now <= 0 || !receipts[0].Fits:
			t.Errorf("Take returned no error, but left the receipt invalid: %+v", receipts[0])
		default:
			counted++
		}
		cancel()
	}
	if used := s.used(t.Name(), p); used < counted || used > counted+unknown {
		t.Errorf("%d units are used, although %d takes succeeded and %d failed", used, counted, unknown)
	}
}
