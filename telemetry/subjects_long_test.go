//go:build long

package telemetry

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Whatever comes, there is no more memory than stated, and no bound is broken.
func TestLongSubjectsMemory(t *testing.T) {
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
	for step := range 8 {
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
	if !squeezed {
		t.Error("there was enough memory, so this tests nothing")
	}
	if grown := testkit.Heap() - before; grown > subjectsBudget+8<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	} else {
		t.Logf("the heap has grown by %d MiB, of which %d are in the budget", grown>>20, s.budget.used.Load()>>20)
	}
	for name, want := range truth {
		told := joined(t, name, at, s)
		for _, top := range []Top{told.Traffic[Hour], told.Refusals[Day]} {
			top.Total = want.total() // what is not known is not told, and what is lost may be older
			check(t, top, want)
		}
		top := told.Refusals[Hour]
		t.Logf("%s: %d subjects, an error of %d of %d; %d refused of %d", name, len(top.Items), top.Error, top.Total, told.Refused[Hour], len(want))
		if name == names[0] && (len(top.Items) == 0 || top.Items[0].Key != name+"/often") {
			t.Errorf("the first of %s is %v", name, top.Items)
		}
	}
	checkBytes(t, s)
	runtime.KeepAlive(s)
}
