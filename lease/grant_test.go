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

// small is a limit of so many units a period of so many microseconds, which are its ticks.
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

// A unit may be spent until the level beneath it has drained: worked out by hand.
func TestLifetimes(t *testing.T) {
	p := small(t, sluice.GCRA, 2, 6, 10) // a unit adds 3, a tick drains 1
	if p.Unit != 3 || p.Drain != 1 || p.Size != 30 {
		t.Fatalf("%+v", p)
	}
	g := newGrant(p, 3, 0, &sluice.Receipt{Receipt: kernel.Receipt{Now: 100, Used: 14, Fits: true}})   // 5, 8 and 11 beneath them
	few := newGrant(p, 3, 2, &sluice.Receipt{Receipt: kernel.Receipt{Now: 100, Used: 14, Fits: true}}) // -1, 2 and 5
	for at, want := range map[int64]int64{100: 1, 102: 1, 103: 2, 105: 2, 106: 3} {
		if got := few.first(at); got != want {
			t.Errorf("where others may give back two, unit %d is the first at %d, want %d", got, at, want)
		}
	}
	for i, want := range []int64{105, 108, 111} {
		if got := g.until(int64(i)); got != want {
			t.Errorf("unit %d is good until %d, want %d", i, got, want)
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

// No unit lives beyond the horizon, however full the bucket is.
func TestHorizonEnds(t *testing.T) {
	p := plan(t, sluice.Limit{Count: 100, Period: time.Second, Burst: 10_000})
	g := newGrant(p, 50, 0, &sluice.Receipt{Receipt: kernel.Receipt{Now: 1e15, Used: p.Size, Fits: true}})
	if last := int64(1e15) + Horizon.Microseconds(); g.first(last) != 0 || g.first(last+1) != 50 {
		t.Errorf("units of a full bucket can be spent from %d at its horizon, and %d behind it", g.first(last), g.first(last+1))
	}
}

// The model has processes that share one key. Each step is one of all that may happen.

// lot is units that somebody has: a process, or an answer or a message on its way.
type lot struct {
	now, beneath, next, n int64
	stale                 bool // reserved before a reset
}

const (
	held   = iota // by a process
	answer        // of a reservation, to a process
	back          // given back, to the store
	places
)

// world is a state of all processes and of the store, at a time.
type world struct {
	now           int64
	shared, exact kernel.State
	budget        kernel.State
	lots          [places][]lot // sorted, since it does not matter whose they are
}

// search goes through all that can happen.
type search struct {
	p      *sluice.Plan
	most   int   // lots in each place
	grants int64 // the most units that are reserved at once
	slack  int64 // by how much too long units are kept: a mistake, which must be found
	reset  bool
	budget *sluice.Plan      // of what is given back; without one, nothing else bounds it
	others int64             // what is given back at most in the life of a unit
	seen   map[string]string // by world, how it came to be
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

// normal returns w as it is at its time, with times moved so that worlds that go on alike are the same.
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
				// What has been spent is as if it had never been there: a lot of the rest, higher up.
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

// id returns a text that only this world has.
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

// with returns w with a lot more in a place, and at whose place another is left out.
func (w world) with(place int, l lot) world {
	w.lots[place] = append(slices.Clone(w.lots[place]), l)
	return w
}

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

	// A strict Take is one that is spent when it is reserved.
	strict := w
	if strict.shared = p.Step(w.shared, w.now, 1, &r.Receipt); r.Fits {
		s.spend(id, "a strict Take", strict)
	}

	for i, l := range w.lots[answer] {
		if len(w.lots[held]) < s.most {
			s.reach(id, "a late answer comes", w.without(answer, i).with(held, l))
		}
	}
	for i, l := range w.lots[held] {
		rest := w.without(held, i)
		s.reach(id, "a process drops what it has", rest)
		if len(w.lots[back]) < 1 {
			s.reach(id, "a process gives back what it has", rest.with(back, l))
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
		s.reach(id, "what was given back is lost", rest)
		if g := s.grant(&l); l.stale || w.now > g.until(l.next)+s.slack {
			continue
		}
		if s.budget != nil {
			if rest.budget = s.budget.Step(w.budget, w.now, l.n-l.next, &r.Receipt); !r.Fits {
				continue
			}
		}
		rest.shared = p.Step(w.shared, w.now, l.next-l.n, &r.Receipt)
		s.reach(id, "what was given back comes", rest)
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

// spend asks the exact limiter.
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

// In whatever order things happen, and whatever is lost or late, the exact limiter admits what was
// spent. A unit that lives a tick too long is found out.
func TestAllOrders(t *testing.T) {
	t.Parallel()
	testAllOrders(t, false)
}

// testAllOrders searches through more in the long form.
func testAllOrders(t *testing.T, long bool) {
	type setup struct {
		algorithm            sluice.Algorithm
		count, period, burst int64
		grants               int64
		most                 int
		budget               int64 // of units to be given back, in a period as long as the bucket
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
			t.Errorf("%v: the exact limiter refuses what is spent when\n%s", p.Limit, right.found)
		}
		late := s
		late.slack, late.others, late.budget = 1, 0, nil
		late.most = max(2, c.most)
		if late.run(t); late.found == "" {
			t.Errorf("%v: units that live for a tick too long are not found out", p.Limit)
		}
		if c.budget > 0 {
			free := s
			free.budget, free.others = nil, 0
			free.most = 2
			if free.run(t); free.found == "" {
				t.Errorf("%v: that all is given back is not found out", p.Limit)
			}
		}
		t.Logf("%v: %d worlds, %v", p.Limit, n, time.Since(began))
		if !long && n > 5000 {
			continue // it takes ten times as many worlds
		}
		resets := s
		resets.most, resets.grants, resets.reset = 1, 1, true
		m := resets.run(t)
		if resets.found != "" {
			t.Errorf("%v, with resets: the exact limiter refuses what is spent when\n%s", p.Limit, resets.found)
		}
		t.Logf("%v: %d worlds with resets, %v", p.Limit, m, time.Since(began))
	}
}
