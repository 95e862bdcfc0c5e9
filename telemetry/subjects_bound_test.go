package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
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
		squeezed = squeezed || s.budget.used.Load() > subjectsBudget*3/4
		s.export(at)
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
				for _, p := range h.past[w] {
					sum += slotBytes + int64(len(p.encoded))
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
	squeezed := false
	for range 10 {
		flood("a", 2000)
		flood("b", 1000)
		tick()
		top := joined(t, "quiet", at, s).Refusals[Hour]
		squeezed = squeezed || top.Error > 0
	}
	if used := s.budget.used.Load(); used > s.budget.most {
		t.Errorf("%d bytes are in use", used)
	}
	if !squeezed {
		t.Error("nothing was squeezed")
	}
	checkBytes(t, s)
	at = at.Add(25 * time.Hour)
	for range 10 {
		tick()
	}
	if top := joined(t, "quiet", at, s).Refusals[Hour]; len(top.Items) != 20 || top.Error != 0 || top.Total != 200 {
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

	s = newSubjectsWithin(10 * int64(ruledBytes))
	truth := exact{}
	for i := range 30 {
		name := fmt.Sprintf("rule-%d", i)
		s.count(0, name, name+"/a", true, noon.UnixMilli())
		truth[name+"/a"]++
	}
	for i := range 30 {
		name := fmt.Sprintf("rule-%d", i)
		top := joined(t, name, noon, s).Traffic[Hour]
		if len(top.Items) == 0 && top.Error == 0 {
			t.Errorf("%s is said to have nobody", name)
		}
	}
}

// A rule that has no place at first is told of with what it may have missed.
func TestSubjectsLate(t *testing.T) {
	t.Parallel()
	s := newSubjectsWithin(int64(ruledBytes) + 100)
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

// Those beyond the list are in its error.
func TestSubjectsMany(t *testing.T) {
	t.Parallel()
	s, truth := newSubjects(), exact{}
	for i := range 150 {
		key := fmt.Sprintf("pages/%d", i)
		for range i + 1 {
			s.count(0, "pages", key, true, noon.UnixMilli())
			truth[key]++
		}
	}
	top := joined(t, "pages", noon, s).Refusals[Hour]
	check(t, top, truth)
	if len(top.Items) != mostItems || top.Items[0].Error != 0 {
		t.Errorf("%d are told of, the first with an error of %d", len(top.Items), top.Items[0].Error)
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

// Nothing is allocated, and nothing is missing, whoever counts while others export.
func TestSubjectsConcurrent(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	const callers, each = 8, 5000
	ctx, cancel := context.WithCancel(t.Context())
	var exporter, all sync.WaitGroup
	exporter.Go(func() {
		for at := noon; ctx.Err() == nil; at = at.Add(time.Second) {
			var f fleetSubjects
			if err := f.add(s.export(at)); err != nil {
				t.Error(err)
			}
			runtime.Gosched()
		}
	})
	for c := range callers {
		all.Go(func() {
			for i := range each {
				s.count(uintptr(c)<<10, fmt.Sprintf("rule-%d", i%3), fmt.Sprintf("rule-%d/%d", i%3, i%7), i%2 == 0, noon.UnixMilli())
			}
		})
	}
	all.Wait()
	cancel()
	exporter.Wait()
	total := uint64(0)
	for i := range 3 {
		total += joined(t, fmt.Sprintf("rule-%d", i), noon.Add(time.Minute), s).Traffic[Day].Total
	}
	if total != callers*each {
		t.Errorf("%d were counted of %d", total, callers*each)
	}
}

// What an engine decides about is counted under its key, once for all limits of a rule.
func TestSubjectsNote(t *testing.T) {
	t.Parallel()
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "pages", Key: []string{"header:X-Key"}, Limit: "2/hour"}}})
	if err != nil {
		t.Fatal(err)
	}
	s := newSubjects()
	e := policy.NewEngine(memory.New(), p)
	e.Observe(func(_ context.Context, o *policy.Observation) {
		i := 0
		said := judge(&o.Decision, &i)
		s.note(o, 0, o.Decision.Results[0].Rule, &said, noon.UnixNano())
	})
	for range 5 {
		e.Decide(t.Context(), &policy.Request{Path: "/", Header: map[string][]string{"X-Key": {"<b>"}}})
	}
	said := s.export(noon)
	var f fleetSubjects
	if err := f.add(said); err != nil {
		t.Fatal(err)
	}
	r := &Rule{Name: "pages"}
	f.fill(r, p, noon)
	key := "pages/%3Cb%3E"
	check(t, r.Traffic[Minute], exact{key: 5})
	check(t, r.Refusals[Day], exact{key: 3})
	if got := r.Refusals[Day].Items[0]; got.Shown != p.ShownKey(key) || !got.First.Equal(noon) || !got.Last.Equal(noon) || got.Minutes != 1 {
		t.Errorf("told of %+v", got)
	}
	if found, ok := f.find(r.Traffic[Minute].Items[0].ID, p); !ok || found != key {
		t.Errorf("found %q", found)
	}
	if found, ok := f.find("0123456789abcdef", p); ok {
		t.Errorf("found %q", found)
	}
}

// Whoever can write where instances post cannot stop those who read.
func FuzzSubjectsAdd(f *testing.F) {
	s := newSubjects()
	f.Add([]byte{postedVersion})
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
