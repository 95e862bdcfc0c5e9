package lease

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// small returns the plan of a limit with ticks of a microsecond. The period is in microseconds, too.
func small(t testing.TB, a sluice.Algorithm, count, period, burst int64) *sluice.Plan {
	l := sluice.Limit{Algorithm: a, Count: count, Period: time.Duration(period) * time.Microsecond}
	if a == sluice.GCRA {
		l.Burst = burst
	}
	p := plan(t, l)
	if p.Tick != 1 {
		t.Fatalf("%v has ticks of %d µs", l, p.Tick)
	}
	return p
}

// A unit may be spent until the level beneath it has drained. The expected times were computed by hand.
func TestLifetimes(t *testing.T) {
	p := small(t, sluice.GCRA, 2, 6, 10) // a unit adds 3, a tick drains 1
	if p.Unit != 3 || p.Drain != 1 || p.Size != 30 {
		t.Fatalf("%+v", p)
	}
	// The levels beneath the units are 5, 8 and 11. With the units that others may give back, they are -1, 2 and 5.
	g := newGrant(p, 3, 0, &sluice.Receipt{Receipt: kernel.Receipt{Now: 100, Used: 14, Fits: true}})
	few := newGrant(p, 3, 2, &sluice.Receipt{Receipt: kernel.Receipt{Now: 100, Used: 14, Fits: true}})
	for at, want := range map[int64]int64{100: 1, 102: 1, 103: 2, 105: 2, 106: 3} {
		if got := few.first(at); got != want {
			t.Errorf("if others may give back two units, unit %d is the first at %d, want %d", got, at, want)
		}
	}
	for i, want := range []int64{105, 108, 111} {
		if got := g.until(int64(i)); got != want {
			t.Errorf("unit %d may be spent until %d, want %d", i, got, want)
		}
	}
	for at, want := range map[int64]int64{100: 0, 105: 0, 106: 1, 108: 1, 109: 2, 111: 2, 112: 3, 900: 3} {
		if got := g.first(at); got != want {
			t.Errorf("at %d unit %d is the first, want %d", at, got, want)
		}
	}
	w := small(t, sluice.FixedWindow, 10, 8, 0)
	g = newGrant(w, 4, 0, &sluice.Receipt{Receipt: kernel.Receipt{Now: 19, Tick: 2, Used: 4, Fits: true}})
	for at, want := range map[int64]int64{19: 0, 23: 0, 24: 4} {
		if got := g.first(at); got != want {
			t.Errorf("in a window that ends at 24, unit %d is the first at %d, want %d", got, at, want)
		}
	}
	if g = newGrant(w, 4, 0, &sluice.Receipt{Receipt: kernel.Receipt{Now: 19, Tick: 3, Used: 4, Fits: true}}); g.n != 0 {
		t.Error("units of a window that has not begun are granted")
	}
}

// No unit can be spent after the horizon, however full the bucket is.
func TestHorizonEnds(t *testing.T) {
	p := plan(t, sluice.Limit{Count: 100, Period: time.Second, Burst: 10_000})
	g := newGrant(p, 50, 0, &sluice.Receipt{Receipt: kernel.Receipt{Now: 1e15, Used: p.Size, Fits: true}})
	if last := int64(1e15) + Horizon.Microseconds(); g.first(last) != 0 || g.first(last+1) != 50 {
		t.Errorf("in a full bucket, unit %d is the first at the horizon, want 0, and unit %d after it, want 50", g.first(last), g.first(last+1))
	}
}

// The tests below search all states of a model: processes that share one key, and a store. Each step is one of the
// possible events.

// lot is a number of units that a process has, or that are in an answer or a message on its way.
type lot struct {
	now, beneath, next, n int64
	stale                 bool // reserved before a reset
}

const (
	held   = iota // a process has the units
	answer        // the answer of a reservation is on its way to a process
	back          // the units are on their way back to the store
	places
)

// world is the state of all processes and of the store at a time.
type world struct {
	now           int64
	shared, exact kernel.State
	budget        kernel.State
	lots          [places][]lot // sorted, because it does not matter which process has them
}

// search visits all worlds that can be reached.
type search struct {
	p      *sluice.Plan
	most   int   // maximum number of lots that processes have
	grants int64 // maximum number of units in a reservation
	slack  int64 // number of ticks for which units are kept too long: an error that the search must find
	reset  bool
	budget *sluice.Plan      // bounds the units that are given back; nil for no bound
	others int64             // maximum number of units that are given back while a unit may be spent
	seen   map[string]string // for each world, the step that led to it, and the world before
	queue  []world
	labels []string
	found  string
}

func (s *search) grant(l *lot) grant {
	r := sluice.Receipt{Receipt: kernel.Receipt{Now: l.now, Used: l.beneath + s.p.Level(l.n+s.others), Fits: true}}
	if s.p.Kernel != kernel.Meter {
		r.Tick, _, _ = s.p.WindowAt(l.now)
	}
	return s.newGrant(l.n, &r)
}

func (s *search) newGrant(n int64, r *sluice.Receipt) grant { return newGrant(s.p, n, s.others, r) }

// alive forgets the units of a lot that are too old, and reports whether any are left.
func (s *search) alive(l *lot, now int64) bool {
	g := s.grant(l)
	l.next = max(l.next, g.first(max(l.now, now-s.slack)))
	return l.next < l.n
}

// normal returns w without drained levels and expired units, and with all times shifted, so that worlds with the same
// future are equal.
func (s *search) normal(w world) world {
	period := int64(1)
	if s.p.Kernel != kernel.Meter {
		period = s.p.Span
	}
	const base = 1000
	by := (w.now - base*period) / period * period
	for _, st := range []*kernel.State{&w.shared, &w.exact} {
		if s.p.Kernel == kernel.Meter {
			level := max(0, st.Used-(w.now-st.Tick)*s.p.Drain)
			*st = kernel.State{Tick: w.now - by, Used: level}
			if level == 0 {
				*st = kernel.State{}
			}
			continue
		}
		var r sluice.Receipt
		s.p.Step(*st, w.now, 0, &r.Receipt)
		*st = kernel.State{Tick: r.Tick - by/s.p.Span, Used: r.Used, Prev: r.Prev}
		if r.Used == 0 && r.Prev == 0 {
			*st = kernel.State{}
		}
	}
	if s.budget != nil {
		level := max(0, w.budget.Used-(w.now-w.budget.Tick)*s.budget.Drain)
		w.budget = kernel.State{Tick: w.now - by, Used: level}
		if level == 0 {
			w.budget = kernel.State{}
		}
	}
	for i := range w.lots {
		var lots []lot
		for _, l := range w.lots[i] {
			if s.alive(&l, w.now) {
				l.now -= by
				// The spent units no longer matter: the rest is a lot with a higher level beneath it.
				if s.p.Kernel == kernel.Meter {
					l.beneath += l.next*s.p.Unit - (w.now-by-l.now)*s.p.Drain
					l.n, l.next, l.now = l.n-l.next, 0, w.now-by
				} else {
					l.n, l.next, l.now, l.beneath = l.n-l.next, 0, base*period, 0
				}
				lots = append(lots, l)
			}
		}
		slices.SortFunc(lots, func(a, b lot) int {
			return slices.Compare([]int64{a.now, a.beneath, a.next, a.n}, []int64{b.now, b.beneath, b.next, b.n})
		})
		w.lots[i] = lots
	}
	w.now -= by
	return w
}

// id returns a text that is unique to this world.
func (w *world) id() string {
	var b []byte
	add := func(numbers ...int64) {
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	add(w.now, w.shared.Tick, w.shared.Used, w.shared.Prev, w.exact.Tick, w.exact.Used, w.exact.Prev, w.budget.Tick, w.budget.Used)
	for _, lots := range w.lots {
		add(int64(len(lots)))
		for _, l := range lots {
			add(l.now, l.beneath, l.next, l.n)
			b = strconv.AppendBool(b, l.stale)
		}
	}
	return string(b)
}

func (s *search) reach(from, step string, w world) {
	w = s.normal(w)
	id := w.id()
	if _, known := s.seen[id]; known {
		return
	}
	s.seen[id] = step + "\n" + from
	s.queue, s.labels = append(s.queue, w), append(s.labels, id)
}

// with returns w with one more lot in a place.
func (w world) with(place int, l lot) world {
	w.lots[place] = append(slices.Clone(w.lots[place]), l)
	return w
}

// without returns w without a lot of a place.
func (w world) without(place, i int) world {
	w.lots[place] = slices.Delete(slices.Clone(w.lots[place]), i, i+1)
	return w
}

// run searches, and returns the number of worlds.
func (s *search) run(t *testing.T) int {
	s.seen = map[string]string{}
	s.reach("", "the beginning", world{now: 1000 * max(1, s.p.Span)})
	for len(s.queue) > 0 && s.found == "" {
		w, id := s.queue[0], s.labels[0] // the shortest history first
		s.queue, s.labels = s.queue[1:], s.labels[1:]
		s.steps(w, id)
		if len(s.seen) > 5_000_000 {
			t.Fatalf("%v: too many worlds", s.p.Limit)
		}
	}
	return len(s.seen)
}

func (s *search) steps(w world, id string) {
	p := s.p
	var r sluice.Receipt

	later := w
	later.now++
	s.reach(id, "a tick", later)

	for n := int64(1); n <= s.grants; n++ {
		next := w
		if next.shared = p.Step(w.shared, w.now, n, &r.Receipt); !r.Fits {
			continue
		}
		g := s.newGrant(n, &r)
		l := lot{now: g.now, beneath: g.beneath, n: g.n}
		s.reach(id, fmt.Sprint(n, " are reserved, and the answer, or the process, is lost"), next)
		if len(w.lots[held]) < s.most {
			s.reach(id, fmt.Sprint(n, " are reserved"), next.with(held, l))
		}
		if len(w.lots[answer]) < 1 {
			s.reach(id, fmt.Sprint(n, " are reserved, and the answer is late"), next.with(answer, l))
		}
	}

	// A strict Take spends its unit when it reserves it.
	strict := w
	if strict.shared = p.Step(w.shared, w.now, 1, &r.Receipt); r.Fits {
		s.spend(id, "a strict Take", strict)
	}

	for i, l := range w.lots[answer] {
		if len(w.lots[held]) < s.most {
			s.reach(id, "a late answer arrives", w.without(answer, i).with(held, l))
		}
	}
	for i, l := range w.lots[held] {
		rest := w.without(held, i)
		s.reach(id, "a process drops its units", rest)
		if len(w.lots[back]) < 1 {
			s.reach(id, "a process gives back its units", rest.with(back, l))
		}
		one := l
		one.next++
		spent := rest.with(held, one)
		if l.stale {
			s.reach(id, "a unit is spent that was reserved before the reset", spent)
		} else {
			s.spend(id, fmt.Sprintf("a unit of %+v is spent", l), spent)
		}
	}
	for i, l := range w.lots[back] {
		rest := w.without(back, i)
		s.reach(id, "units that were given back are lost", rest)
		if g := s.grant(&l); l.stale || w.now > g.until(l.next)+s.slack {
			continue
		}
		if s.budget != nil {
			if rest.budget = s.budget.Step(w.budget, w.now, l.n-l.next, &r.Receipt); !r.Fits {
				continue
			}
		}
		rest.shared = p.Step(w.shared, w.now, l.next-l.n, &r.Receipt)
		s.reach(id, "units that were given back arrive", rest)
	}
	if s.reset {
		next := w
		next.shared, next.exact = kernel.State{}, kernel.State{}
		for i := range next.lots {
			next.lots[i] = slices.Clone(next.lots[i])
			for j := range next.lots[i] {
				next.lots[i][j].stale = true
			}
		}
		s.reach(id, "a reset", next)
	}
}

// spend takes a unit from the exact limiter. If it denies the unit, the search has found an error.
func (s *search) spend(from, step string, w world) {
	var r sluice.Receipt
	if w.exact = s.p.Step(w.exact, w.now, 1, &r.Receipt); r.Fits {
		s.reach(from, step, w)
		return
	}
	var how []string
	for how = append(how, step); from != ""; {
		last, before, _ := strings.Cut(s.seen[from], "\n")
		how, from = append(how, last), before
	}
	slices.Reverse(how)
	s.found = strings.Join(how, "\n")
}

// The exact limiter admits all spent units in all orders of events, with lost and late messages. The search fails, as
// it must, if units can be spent for a tick too long, or if there is no budget.
func TestAllOrders(t *testing.T) {
	t.Parallel()
	testAllOrders(t, false)
}

// testAllOrders searches more worlds if long is set.
func testAllOrders(t *testing.T, long bool) {
	type setup struct {
		algorithm            sluice.Algorithm
		count, period, burst int64
		grants               int64
		most                 int
		budget               int64 // units that may be given back while the bucket drains; 0 for no budget
	}
	for _, c := range []setup{
		{sluice.GCRA, 1, 1, 6, 2, 1, 1},
		{sluice.GCRA, 1, 2, 5, 1, 2, 1},
		{sluice.GCRA, 2, 3, 5, 2, 1, 1},
		{sluice.FixedWindow, 4, 4, 0, 2, 2, 0},
		{sluice.SlidingWindowCounter, 4, 4, 0, 2, 1, 0},
		{sluice.SlidingWindowCounter, 3, 3, 0, 2, 2, 0},
	} {
		if long {
			c.most = 2
		} else if c.period == 3 && c.budget > 0 {
			continue
		}
		p := small(t, c.algorithm, c.count, c.period, c.burst)
		s := search{p: p, most: c.most, grants: c.grants}
		if c.budget > 0 {
			s.budget, s.others = small(t, sluice.GCRA, c.budget, p.Size/p.Drain, c.budget), 2*c.budget
		}
		began := time.Now()
		right := s
		n := right.run(t)
		if right.found != "" {
			t.Errorf("%v: the exact limiter denies a spent unit after\n%s", p.Limit, right.found)
		}
		late := s
		late.slack, late.others, late.budget = 1, 0, nil
		late.most = max(2, c.most)
		if late.run(t); late.found == "" {
			t.Errorf("%v: the search does not find units that can be spent for a tick too long", p.Limit)
		}
		if c.budget > 0 {
			free := s
			free.budget, free.others = nil, 0
			free.most = 2
			if free.run(t); free.found == "" {
				t.Errorf("%v: the search does not find that a budget is missing", p.Limit)
			}
		}
		t.Logf("%v: %d worlds, %v", p.Limit, n, time.Since(began))
		if !long && n > 5000 {
			continue // with resets, there are ten times as many worlds
		}
		resets := s
		resets.most, resets.grants, resets.reset = 1, 1, true
		m := resets.run(t)
		if resets.found != "" {
			t.Errorf("%v, with resets: the exact limiter denies a spent unit after\n%s", p.Limit, resets.found)
		}
		t.Logf("%v: %d worlds with resets, %v", p.Limit, m, time.Since(began))
	}
}
