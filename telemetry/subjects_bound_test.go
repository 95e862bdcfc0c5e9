package telemetry

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// Whatever comes, there is no more memory than stated, and no bound is broken.
func TestSubjectsMemory(t *testing.T) { testSubjectsMemory(t, 2) }

// testSubjectsMemory counts in some steps. With eight, there is not enough memory for all.
func testSubjectsMemory(t *testing.T, steps int) {
	const rules = 10_000
	names := make([]string, rules)
	for i := range names {
		names[i] = fmt.Sprintf("rule-%d", i)
	}
	r := rand.New(rand.NewPCG(5, 6))
	before := testkit.Heap()
	s := newSubjects()
	truth := map[string]exact{names[0]: {}, names[30]: {}, names[2000]: {}, names[rules-1]: {}}
	squeezed := false
	for step := range steps {
		at := noon.Add(time.Duration(3*step) * time.Second)
		count := func(rule int, key string) {
			name := names[rule]
			key = name + "/" + key
			if truth[name] != nil {
				truth[name][key]++
			}
			s.count(0, name, key, true, at.UnixMilli())
		}
		for i := range rules {
			count(i, "often")
			if i < 50 {
				for range 200 {
					count(i, fmt.Sprintf("%x%s", r.Uint64(), strings.Repeat("x", r.IntN(1+40*i))))
				}
			}
		}
		for range 500 {
			count(r.IntN(rules), fmt.Sprintf("%x", r.Uint64()))
		}
		if used := s.budget.used.Load(); used > subjectsBudget {
			t.Fatalf("%d bytes are in use", used)
		}
		s.export(at)
		squeezed = squeezed || s.squeezed
	}
	at := noon.Add(45 * time.Second)
	if steps >= 8 && !squeezed {
		t.Error("there was enough memory, so this tests nothing")
	}
	if grown := testkit.Heap() - before; grown > subjectsBudget+8<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	for name, want := range truth {
		told := joined(t, name, at, s)
		for _, top := range []Top{told.Traffic[Hour], told.Refusals[Day]} {
			top.Total = want.total() // what is not known is not told, and what is lost may be older
			check(t, top, want)
		}
		top := told.Refusals[Hour]
		if name == names[0] && (len(top.Items) == 0 || top.Items[0].Key != name+"/often") {
			t.Errorf("the first of %s is %v", name, top.Items)
		}
	}
	checkBytes(t, s)
	runtime.KeepAlive(s)
}

// checkBytes fails unless each rule takes as many bytes as it is thought to.
func checkBytes(t *testing.T, s *subjects) {
	t.Helper()
	for _, r := range s.rules {
		sum := int64(0)
		for i := range r.histories {
			h := &r.histories[i]
			sum += int64(h.now.bytes())
			for w := range h.past {
				sum += int64(len(h.joined[w]))
				for _, p := range h.past[w] {
					sum += slotBytes + int64(len(p.said))
				}
			}
		}
		if sum != r.bytes() {
			t.Fatalf("%s takes %d bytes, and is thought to take %d", r.name, sum, r.bytes())
		}
	}
}

// Once the budget is free again, what was squeezed has room again.
func TestSubjectsRecover(t *testing.T) {
	t.Parallel()
	s := newSubjectsWithin(160 << 10)
	at := noon
	flood := func(rule string, n int) {
		for i := range n {
			s.count(0, rule, fmt.Sprintf("%s/%d", rule, i), true, at.UnixMilli())
		}
	}
	tick := func() {
		flood("quiet", 20)
		at = at.Add(10 * time.Second)
		s.export(at)
	}
	for range 10 {
		flood("a", 2000)
		flood("b", 1000)
		tick()
	}
	if used := s.budget.used.Load(); used > s.budget.most {
		t.Errorf("%d bytes are in use", used)
	}
	if !s.squeezed {
		t.Error("nothing was squeezed")
	}
	checkBytes(t, s)
	at = at.Add(25 * time.Hour)
	for range 10 {
		tick()
	}
	if top := joined(t, "quiet", at, s).Refusals[Hour]; len(top.Items) != 20 || top.Error != 0 || top.Total != 200 || s.squeezed {
		t.Errorf("a day later, %d are told of, with an error of %d, of %d", len(top.Items), top.Error, top.Total)
	}
}

// What no summary can have is in the error.
func TestSubjectsLost(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	long := "pages/" + strings.Repeat("x", maxKey)
	for range 5 {
		s.count(0, "pages", long, true, noon.UnixMilli())
	}
	s.count(0, "pages", "pages/a", true, noon.UnixMilli())
	check(t, joined(t, "pages", noon, s).Refusals[Minute], exact{long: 5, "pages/a": 1})
}

// A rule that has no place at first is told of with what it may have missed.
func TestSubjectsLate(t *testing.T) {
	t.Parallel()
	s := newSubjectsWithin(ruledBytes + 100)
	for _, rule := range []string{"first", "late", "late"} {
		s.count(0, rule, rule+"/a", true, noon.UnixMilli())
		s.export(noon)
	}
	s.budget.most = subjectsBudget
	s.count(0, "late", "late/a", true, noon.UnixMilli())
	top := joined(t, "late", noon, s).Refusals[Hour]
	if len(top.Items) != 1 || top.Items[0].Count < 3 || top.Items[0].Count-top.Items[0].Error > 3 {
		t.Errorf("told of %+v", top)
	}
}

// What has waited in a stripe for long counts as of when it came, whoever comes after it.
func TestSubjectsWaiting(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	for who := range uintptr(64) {
		s.count(who, "pages", "pages/early", true, noon.Add(-2*time.Hour).UnixMilli())
	}
	for who := range uintptr(64) {
		s.count(63-who, "pages", "pages/late", true, noon.UnixMilli())
	}
	r := joined(t, "pages", noon, s)
	check(t, r.Refusals[Minute], exact{"pages/late": 64})
	check(t, r.Refusals[Hour], exact{"pages/late": 64})
	check(t, r.Refusals[Day], exact{"pages/early": 64, "pages/late": 64})
}

// Clocks that are set forward and back lose nothing that is in the window still.
func TestSubjectsClock(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	for _, step := range []time.Duration{0, time.Second, -30 * time.Second, 10 * time.Second, 40 * time.Minute, -39 * time.Minute, 20 * time.Second} {
		s.count(0, "pages", "pages/a", true, noon.Add(step).UnixMilli())
		s.export(noon.Add(step))
	}
	check(t, joined(t, "pages", noon.Add(20*time.Second), s).Refusals[Day], exact{"pages/a": 7})
	s.count(0, "pages", "pages/a", true, noon.AddDate(10, 0, 0).UnixMilli())
	s.export(noon.AddDate(10, 0, 0))
	for range 3 {
		s.count(0, "pages", "pages/b", true, noon.UnixMilli())
	}
	check(t, joined(t, "pages", noon, s).Refusals[Minute], exact{"pages/b": 3})
}

// Whoever can write where instances post cannot stop those who read.
func FuzzSubjectsAdd(f *testing.F) {
	s := newSubjects()
	f.Add([]byte{saidVersion})
	for i := range 2000 {
		s.count(0, "pages", fmt.Sprintf("pages/%d", i%700), i%3 == 0, noon.UnixMilli())
		if i == 10 || i == 1999 {
			f.Add(s.export(noon))
		}
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		var all fleetSubjects
		for range 2 {
			if all.add(said) != nil {
				return
			}
		}
		for name := range all.rules {
			r := &Rule{Name: name}
			all.fill(r, new(policy.Policy), noon)
			for w := range r.Traffic {
				for _, s := range append(r.Traffic[w].Items, r.Refusals[w].Items...) {
					if s.Error > s.Count {
						t.Fatalf("a count of %d with an error of %d", s.Count, s.Error)
					}
				}
			}
		}
	})
}
