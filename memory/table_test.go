package memory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
)

// newStripe returns a stripe with its own tables.
func newStripe(buckets, maxBuckets int) *stripe {
	st := &stripe{tables: new(tables)}
	st.tables.init(1, maxBuckets)
	for int(st.size()) < buckets {
		st.tables.add(st.size())
		st.grow()
	}
	return st
}

// at returns the ith cell, in the order of the buckets.
func (st *stripe) at(i int) *cell { return &st.tables.bucket(uint64(st.number), uint32(i/4))[i%4] }

// TestTable fills a stripe until it has grown to its maximum size, and finds all keys at each size.
func TestTable(t *testing.T) {
	t.Parallel()
	s := NewSize(minBytes)
	l := plantest.Of(t, sluice.Limit{Count: 10, Period: 24 * time.Hour})
	layout := s.plans.layout(l)
	const now = 20_000 * 86_400_000_000
	st := newStripe(firstBuckets, len(s.tables.planes))
	rng := rand.New(rand.NewPCG(9, 9))
	var hashes []uint64
	sizes := map[int]bool{}
	for n := uint64(1); s.evicted.Load() == 0; n++ {
		hash := rng.Uint64()
		tag := hash<<16 | layout.index
		s.cellFor(st, tag, now).put(mixed(now+n, tag), tag) // the word shows whether exactly this tag is found
		hashes = append(hashes, hash)
		sizes[int(st.size())] = true
		lost := 0
		for i, h := range hashes {
			tag := h<<16 | layout.index
			if c, w := st.tables.find(uint64(st.number), tag); c == nil || w != mixed(now+uint64(i)+1, tag) {
				lost++
			}
		}
		if int64(lost) != s.evicted.Load() {
			t.Fatalf("%d of %d are lost in %d buckets", lost, n, st.size())
		}
	}
	if len(sizes) < 5 {
		t.Errorf("the table had the sizes %v only", sizes)
	}
	if share := float64(len(hashes)) / float64(4*st.size()); share < 0.85 {
		t.Errorf("the first of %d states was evicted when %.2f of the cells were in use", len(hashes), share)
	}
}

// TestLeastGoes checks that the evicted states are those that have used least, with few exceptions.
func TestLeastGoes(t *testing.T) {
	t.Parallel()
	s := NewSeededSize(t, minBytes)
	p := plantest.Of(t, sluice.Limit{Count: 1000, Period: 24 * time.Hour})
	const now = 20_000 * 86_400_000_000
	used := map[string]int64{}
	take := func(key string, cost int64) (remaining int64) {
		var r [1]sluice.Receipt
		if err := s.TakeAt(t.Context(), now, []sluice.Charge{{Key: key, Plan: p, Cost: cost}}, r[:]); err != nil {
			t.Fatal(err)
		}
		return p.Decide(cost, r[0]).Remaining
	}
	rng := rand.New(rand.NewPCG(11, 11))
	for i := range 4000 {
		key := fmt.Sprint(i)
		used[key] = 1 + rng.Int64N(1000)
		take(key, used[key])
	}
	var kept, lost, lostHigh, high int
	for key, n := range used {
		switch take(key, 0) {
		case 1000 - n:
			kept++
		case 1000:
			lost++
			if n > 600 {
				lostHigh++
			}
		default:
			t.Errorf("%d units of key %s are used, want %d", 1000-take(key, 0), key, n)
		}
		if n > 600 {
			high++
		}
	}
	// There is room for half of the keys: those that have used most.
	if kept < 1900 || lostHigh*50 > high {
		t.Errorf("%d are kept and %d lost, among them %d of the %d that have used most", kept, lost, lostHigh, high)
	}
}

// TestOfEqualsTheSoonestGoes checks that among states that have used more than half, the one that would be empty
// first is evicted, because it is worth least.
func TestOfEqualsTheSoonestGoes(t *testing.T) {
	t.Parallel()
	s := NewSize(minBytes)
	const now = 20_000 * 86_400_000_000
	for soonest := range 8 {
		st := newStripe(firstBuckets, firstBuckets)
		for i := range 8 { // all cells, in the order of a table of two buckets
			l := sluice.Limit{Count: 10, Period: time.Duration(20-(i+8-soonest)%8) * time.Hour}
			if i == soonest {
				l.Period = time.Hour
			}
			p, err := sluice.NewPlan(l)
			if err != nil {
				t.Fatal(err)
			}
			var r sluice.Receipt
			layout := s.plans.layout(p)
			word, ok := layout.pack(p.Step(kernel.State{}, now, 6, &r.Receipt))
			if !ok || r.Used*10 != p.Size*6 {
				t.Fatalf("premise: %v: want six tenths of it used, in a cell: %+v, %v", l, r, ok)
			}
			st.at(i).put(mixed(word, layout.index), layout.index)
		}
		want := st.at(soonest)
		if at, lowest := s.victim(st, 0, now); at.cell != want {
			t.Errorf("cell %d is empty first, and another is evicted, with priority %d", soonest, lowest)
		}
	}
}

// TestTakesWhileCellsMove checks that no Take is lost while its state moves or its table grows.
func TestTakesWhileCellsMove(t *testing.T) {
	p := plantest.Of(t, sluice.Limit{Count: 1e9, Period: 24 * time.Hour, Algorithm: sluice.FixedWindow})
	const now = 20_000 * 86_400_000_000
	for name, move := range map[string]func(st *stripe, hash uint64, round int){
		"grow": func(st *stripe, _ uint64, round int) {
			if size := st.size(); round%16 == 0 && st.tables.add(size) {
				st.split(size)
			}
		},
		"move": func(st *stripe, hash uint64, _ int) {
			if c := st.findHash(hash); c != nil {
				to := st.freeCell(c.tag.Load())
				c.move(to)
			}
		},
	} {
		s := NewSize(0)
		pair := []sluice.Charge{{Key: "one", Plan: p, Cost: 1}, {Key: "two", Plan: p, Cost: 1}}
		var takes [2]atomic.Int64
		var wg sync.WaitGroup
		var done atomic.Bool
		for range 3 {
			wg.Go(func() {
				var receipts [2]sluice.Receipt
				for n := 0; !done.Load(); n++ {
					charges := [][]sluice.Charge{pair[:1], pair[1:], pair}[n%3]
					if err := s.TakeAt(t.Context(), now, charges, receipts[:len(charges)]); err != nil {
						t.Error(err)
						return
					}
					for i := range charges {
						takes[n%3%2+i].Add(1)
					}
				}
			})
		}
		for round := range 2000 {
			for i := range pair {
				hash := s.hash(&pair[i])
				st := s.stripe(hash)
				st.mu.Lock()
				move(st, hash, round)
				st.mu.Unlock()
			}
			runtime.Gosched()
		}
		done.Store(true)
		wg.Wait()
		for i := range pair {
			pair[i].Cost = 0
			var r [1]sluice.Receipt
			if err := s.TakeAt(t.Context(), now, pair[i:i+1], r[:]); err != nil || r[0].Used != takes[i].Load() {
				t.Errorf("%s: %d units of key %d are used of %d, %v", name, r[0].Used, i, takes[i].Load(), err)
			}
			pair[i].Cost = 1
		}
	}
}

// TestOverflowShrinksEvenly checks that a flood leaves each stripe a proportional number of logs. If small stripes
// lost most, they would finally lose logs that should stay.
func TestOverflowShrinksEvenly(t *testing.T) {
	t.Parallel()
	s := NewSeededSize(t, 256<<10)
	p := plantest.Of(t, sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.SlidingWindowLog})
	receipts := make([]sluice.Receipt, 1)
	for i := range 20_000 {
		if err := s.TakeAt(t.Context(), 1, []sluice.Charge{{Key: fmt.Sprint(i), Plan: p, Cost: 1}}, receipts); err != nil {
			t.Fatal(err)
		}
	}
	average := s.StatsAt(1).Keys / len(s.stripes)
	for i := range s.stripes {
		if n := s.stripes[i].overflow.n; n < average/3 || n > average*3 {
			t.Errorf("stripe %d has %d, and the average is %d", i, n, average)
		}
	}
}

// TestFullBesideClaims checks that a store that refuses new keys can look for room for a key while the same
// decision has claimed neighboring cells. It must not move these, because a move waits for the end of the claim.
func TestFullBesideClaims(t *testing.T) {
	t.Parallel()
	s := Config{MaxBytes: minBytes, RefuseNew: true}.New()
	p := plantest.Of(t, sluice.Limit{Count: 10, Period: 24 * time.Hour})
	layout := s.plans.layout(p)
	const now = 20_000 * 86_400_000_000
	st := newStripe(len(s.tables.planes), len(s.tables.planes))
	rng := rand.New(rand.NewPCG(10, 10))
	tag := func() uint64 { return rng.Uint64()<<16 | layout.index }
	for range 3 * len(s.tables.planes) { // three quarters
		tag := tag()
		s.cellFor(st, tag, now).put(mixed(uint64(now+p.Size), tag), tag)
	}
	for crowded := 0; crowded < 100; {
		tag := tag()
		if st.freeCell(tag) != nil {
			continue
		}
		crowded++
		first, second := st.buckets(tag)
		var words [2][4]uint64
		for n, b := range [...]*bucket{first, second} {
			for i := range b {
				words[n][i] = b[i].claim()
			}
		}
		if s.full(st, tag, now) {
			t.Error("no room is found, although a quarter is free")
		}
		for n, b := range [...]*bucket{first, second} {
			for i := range b {
				if w := b[i].word.Load(); w != busy {
					t.Fatalf("a claimed cell has the word %d", w)
				}
				b[i].word.Store(words[n][i])
			}
		}
	}
}

// TestLateSwap checks that a Take that has read a state does not overwrite the equal state of another key that has
// moved into the cell since.
func TestLateSwap(t *testing.T) {
	t.Parallel()
	p := plantest.Of(t, sluice.Limit{Count: 10, Period: time.Hour, Algorithm: sluice.FixedWindow})
	l, st := newLayout(p, 0), newStripe(firstBuckets, firstBuckets)
	state, one, other := kernel.State{Tick: 7, Used: 3}, l.tag(1), l.tag(2)
	put := func(c *cell, tag uint64) {
		word, ok := l.word(state, tag)
		if !ok {
			t.Fatal("the state does not fit in a cell")
		}
		c.put(word, tag)
	}
	put(st.freeCell(one), one)
	c, read := st.tables.find(0, one)
	next, ok := l.step(read, one, 7*3600e6, 1, new(sluice.Receipt))
	if c == nil || !ok {
		t.Fatal("the state is not found")
	}
	c.take()
	put(c, other)
	if c.word.CompareAndSwap(read, next) {
		t.Error("a take of one key has changed the state of another")
	}
}

// TestStripesAreEven checks that the fullest stripe, which determines the number of planes, has hardly more keys than
// the others, whatever the number of stripes.
func TestStripesAreEven(t *testing.T) {
	t.Parallel()
	const each = 300
	for _, size := range []int64{minBytes, 3 << 20, 100 << 20, 1 << 30, 3 << 29, 5 << 30} {
		n := stripesFor(size / 2)
		s, rng, keys := &Store{stripes: make([]stripe, n)}, rand.New(rand.NewPCG(1, 1)), make([]int, n)
		for range n * each {
			keys[s.placed(rng.Uint64())>>stripeShift]++
		}
		for i, n := range keys { // six standard deviations
			if n < each-105 || n > each+105 {
				t.Errorf("%d bytes: stripe %d of %d has %d keys, and the average is %d", size, i, len(keys), n, each)
				break
			}
		}
	}
}

// TestPackedStates checks that packing does not change the meaning of a state, even if the clock steps in between.
func TestPackedStates(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	stuck := map[string]int{}
	for range 100_000 {
		l := sluice.Limit{
			Count:     1 + rng.Int64N(1<<rng.IntN(40)),
			Period:    time.Duration(1+rng.Int64N(1<<rng.IntN(42))) * time.Microsecond,
			Algorithm: sluice.Algorithms()[rng.IntN(5)],
		}
		length := l.Period.Microseconds()
		if l.Algorithm == sluice.FixedWindow && rng.IntN(2) == 0 {
			l.Period, l.MonthDay, length = 0, 1+rng.IntN(31), 31*24*time.Hour.Microseconds()
		}
		p, err := sluice.NewPlan(l)
		if err != nil {
			continue
		}
		layout := newLayout(p, 0)
		now, later := rng.Int64N(maxTime), rng.Int64N(maxTime)
		if rng.IntN(2) == 0 {
			later = min(max(0, now+rng.Int64N(2*length+1000)-length), maxTime-1)
		}
		var r, want, got sluice.Receipt
		state := p.Step(kernel.State{}, now, 1+rng.Int64N(p.Capacity), &r.Receipt)
		state = p.Step(state, min(now+rng.Int64N(length+10), maxTime-1), 1, &r.Receipt)
		word, ok := layout.pack(state)
		if !ok {
			continue
		}
		if word == 0 {
			t.Fatalf("%v: %+v is packed as a free cell", p.Limit, state)
		}
		stuck[l.Algorithm.String()]++
		if l.MonthDay > 0 {
			stuck["month"]++
		}
		cost := rng.Int64N(2*p.Capacity+1) - p.Capacity/2
		p.Step(state, later, cost, &want.Receipt)
		p.Step(layout.unpack(word, later), later, cost, &got.Receipt)
		if got != want {
			t.Fatalf("%v: %+v of %d, at %d: %+v is %+v after packing", p.Limit, state, now, later, want, got)
		}
	}
	if stuck["month"] < 1500 {
		t.Errorf("only %d states of months were packed", stuck["month"])
	}
	for _, a := range sluice.Algorithms()[:5] {
		if stuck[a.String()] < 1500 {
			t.Errorf("only %d states of %v were packed", stuck[a.String()], a)
		}
	}
}

// TestCommonLimitsPack checks that common limits take 16 bytes.
func TestCommonLimitsPack(t *testing.T) {
	t.Parallel()
	for _, a := range sluice.Algorithms()[:5] {
		for _, limit := range []string{"1/second", "100/minute", "7/second", "999/minute", "5000/hour", "1000000/day", "30000/second"} {
			p := plantest.As(t, a, limit)
			if !newLayout(p, 0).fits {
				t.Errorf("%s %v does not fit a cell", limit, a)
			}
			owing, err := p.WithMost(200 * p.Capacity)
			if err != nil || !newLayout(owing, 0).fits {
				t.Errorf("%s %v that may owe 199 times as much does not fit a cell: %v", limit, a, err)
			}
		}
	}
	p, err := sluice.NewPlan(sluice.Limit{Count: 1e12, MonthDay: 31, Algorithm: sluice.FixedWindow})
	if err != nil || !newLayout(p, 0).fits {
		t.Errorf("a month does not fit a cell: %v", err)
	}
	if p := plantest.Plan(t, "9973/23935h13m burst 10"); newLayout(p, 0).fits {
		t.Errorf("the odd bucket of the tests fits a cell")
	}
}
