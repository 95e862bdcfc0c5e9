package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/storetest"
)

// taking is a store with or without a seed.
type taking interface {
	take(now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
}

// fill adds so many keys to a store that takeFast tries takeClockFirst first. The time now may be own.
func fill[S taking](t *testing.T, s S, stripes []stripe, now int64) S {
	t.Helper()
	p := plantest.Of(t, sluice.Limit{Count: 1, Period: 1000 * time.Hour})
	receipts := make([]sluice.Receipt, 1)
	for i := range 128 * len(stripes) {
		if err := s.take(now, []sluice.Charge{{Key: fmt.Sprint("filling ", i), Plan: p, Cost: 1}}, receipts); err != nil {
			t.Fatal(err)
		}
	}
	for i := range stripes {
		if n := stripes[i].size(); n < manyBuckets {
			t.Fatalf("premise: a stripe of %d buckets", n)
		}
	}
	return s
}

// NewFilled returns a store with so many keys that the clock is read first, for tests outside of the package.
func NewFilled(t *testing.T) *Store {
	s := NewSize(256 << 10)
	return fill(t, s, s.stripes, own)
}

func TestDifferentialClockFirst(t *testing.T) {
	t.Parallel()
	s := NewSeededSize(t, 16<<20)
	t.Cleanup(func() {
		if n := s.Stats().Evicted; n > 0 {
			t.Errorf("premise: %d states were evicted", n)
		}
	})
	storetest.Differential(t, fill(t, s, s.stripes, 20_000*86_400_000_000), new(storetest.Model), Steps(4_000), 4)
}

// TestClockFirst takes at a time that was read before another Take at a later time. A cost that fits is taken;
// otherwise nothing changes, and the charge has to be decided again.
func TestClockFirst(t *testing.T) {
	t.Parallel()
	const size, ms, later = 10, 1000, 20_000 * 86_400_000_000
	p := plantest.Of(t, sluice.Limit{Count: 1000, Period: time.Second, Burst: size})
	s := NewSize(256 << 10)
	fill(t, s, s.stripes, later)
	l, outcomes := s.plans.layout(p), map[bool]int{}
	for level := int64(1); level <= size; level++ {
		for behind := range int64(size + 3) {
			c := sluice.Charge{Key: fmt.Sprint(level, behind), Plan: p}
			plantest.OneAt(t, s, later, c.Key, p, level)
			hash, want := s.hash(&c), level
			var r sluice.Receipt
			first, second := s.tables.buckets(hash>>stripeShift, l.tag(hash))
			got := s.takeClockFirst(later-behind*ms, first, second, l, l.tag(hash), 1, &r)
			// A unit drains in a millisecond, so a millisecond ago the level was one unit higher.
			if fits := level+behind+1 <= size; got != fits {
				t.Errorf("level %d, %d ms behind: %t, want %t", level, behind, got, fits)
			} else if fits {
				want++
				if !r.Fits || p.Decide(1, r).Remaining != size-(level+behind+1) {
					t.Errorf("level %d, %d ms behind: %+v", level, behind, r)
				}
			}
			if left := p.Decide(0, plantest.OneAt(t, s, later, c.Key, p, 0)).Remaining; left != size-want {
				t.Errorf("level %d, %d ms behind: %d left, want %d", level, behind, left, size-want)
			}
			outcomes[got]++
		}
	}
	if outcomes[true] < 10 || outcomes[false] < 10 {
		t.Errorf("premise: %v", outcomes)
	}
}

// Denied keys are remembered, and neither admitted nor new keys replace them.
func TestLimited(t *testing.T) {
	t.Parallel()
	p := plantest.Of(t, sluice.Limit{Count: 2, Period: 1000 * time.Hour})
	s := NewFilled(t)
	c := []sluice.Charge{{Key: "busy", Plan: p, Cost: 1}}
	known := func() bool {
		hash := s.hash(&c[0])
		return s.limited.at(hash).holds(hash)
	}
	var r [1]sluice.Receipt
	for i, want := range []bool{false, false, true, true} {
		if err := s.Take(t.Context(), c, r[:]); err != nil || r[0].Fits == want || known() != want {
			t.Fatalf("take %d: %+v, %v, known: %t; want %t", i, r, err, known(), want)
		}
	}
	for i := range 20_000 {
		if err := s.Take(t.Context(), []sluice.Charge{{Key: fmt.Sprint("new ", i), Plan: p, Cost: 1}}, r[:]); err != nil {
			t.Fatal(err)
		}
	}
	if !known() {
		t.Error("new keys, which are admitted, have replaced a denied key")
	}
}
