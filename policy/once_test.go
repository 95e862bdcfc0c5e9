package policy

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/memory"
)

func TestParallelID(t *testing.T) {
	t.Parallel()
	e := engine(t, "rules: [{name: a, limit: 100/hour}, {name: b, limit: 50/day, algorithm: fixed_window}]")
	var wg sync.WaitGroup
	var first atomic.Int64
	for range 64 {
		wg.Go(func() {
			r := get("/")
			r.ID = "x"
			d := e.Decide(t.Context(), r)
			if !d.Allowed {
				t.Error(said(d))
			}
			if !d.Repeated {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 || remains(t, e, "a") != 99 || remains(t, e, "b") != 49 {
		t.Errorf("%d were first; %d of a and %d of b are left", first.Load(), remains(t, e, "a"), remains(t, e, "b"))
	}
}

// The keys of callers' limits meet neither each other nor those of rules and questions.
func FuzzAdhocKeys(f *testing.F) {
	f.Add("a", "b", "a/b", "")
	f.Add("", "", "!", "/")
	f.Add("{x}", "y", "{x", "}y")
	plan := plantest.Of(f, sluice.Limit{Count: 3, Period: time.Hour})
	e := NewEngine(memory.New(), nil)
	f.Fuzz(func(t *testing.T, name, key, otherName, otherKey string) {
		one, other := e.Adhoc(name, key, plan, sluice.Allow).Key(), e.Adhoc(otherName, otherKey, plan, sluice.Allow).Key()
		if (one == other) != (name == otherName && key == otherKey) {
			t.Errorf("%q %q has %q, and %q %q has %q", name, key, one, otherName, otherKey, other)
		}
		if one[0] != '/' || strings.Count(one, "/") != 2 || strings.ContainsAny(one, "{}!") {
			t.Errorf("%q could be the key of something else", one)
		}
		var k keyText
		if once := onceCharge(&k, []byte(key), one).Key; !strings.HasPrefix(once, "{"+one+"}!/") {
			t.Errorf("the question is in another slot: %q", once)
		}
	})
}
