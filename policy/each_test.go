package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Lists of requests, most of them for subjects with limits of the caller, are decided as each request alone. Observers
// get the same observations in the same order.
func TestEachBrought(t *testing.T) {
	t.Parallel()
	for name, watched := range map[string]bool{"unobserved": false, "observed": true} {
		virtually(t, name, func(t *testing.T) { eachBrought(t, watched) })
	}
}

// observed appends each observation of e to all, as text.
func observed(e *Engine, all *[]string) {
	e.Observe(func(_ context.Context, o *Observation) {
		r := o.Request
		text := fmt.Sprint(r.Path, r.Cost, r.Mode, r.ID, r.Subject != nil, o.Client(), o.Policy() == e.Policy(), plain(o.Decision))
		for i := range o.Decision.Results {
			text += fmt.Sprint(" ", o.RuleIndex(i), " ", o.Key(i), " ", o.Shown(i))
		}
		*all = append(*all, text)
	})
}

func eachBrought(t *testing.T, watched bool) {
	r := dice{rand.New(rand.NewPCG(seed.Of(t), 1))}
	p := parse(t, "rules: [{name: a, limit: 20/hour, count: {status: [401]}}]")
	listed, alone := NewEngine(memory.New(), p), NewEngine(memory.New(), p)
	var inList, one []string
	if watched {
		observed(listed, &inList)
		observed(alone, &one)
	}
	plans := []*sluice.Plan{
		plantest.Of(t, sluice.Limit{Count: 10, Period: time.Minute, Burst: 3}),
		plantest.Of(t, sluice.Limit{Count: 5, Period: time.Minute, Algorithm: sluice.FixedWindow}),
		plantest.Of(t, sluice.Limit{Count: 60, Period: time.Minute, Burst: 5, Algorithm: sluice.LeakyBucket}),
		plantest.Of(t, sluice.Limit{Count: 4, Period: time.Minute, Algorithm: sluice.SlidingWindowLog}),
	}
	ds, tally := make([]Decision, 40), map[string]int{}
	for step := range 200 {
		mine, others := make([]*Request, 1+r.IntN(40)), make([]*Request, 40)
		for i := range mine {
			if mine[i], others[i] = get("/"), get("/"); r.one(9) {
				continue
			}
			is := Request{Cost: r.Int64N(4), Mode: Mode(r.IntN(12) / 10)}
			if r.one(8) {
				is.ID = fmt.Sprint(r.IntN(5))
			}
			n := r.IntN(len(plans))
			key, other := fmt.Sprint(n, "/", r.IntN(3)), is
			is.Subject, other.Subject = listed.Adhoc("brought", key, plans[n], sluice.Allow), alone.Adhoc("brought", key, plans[n], sluice.Allow)
			mine[i], others[i] = &is, &other
		}
		listed.DecideEach(t.Context(), mine, ds[:len(mine)])
		for i := range mine {
			want, got := alone.Decide(t.Context(), others[i]), ds[i].Clone()
			if !reflect.DeepEqual(plain(got), plain(want)) || got.Unsettled() != want.Unsettled() || got.Queued() != want.Queued() {
				t.Fatalf("step %d, %d: %+v\nalone: %+v", step, i, got, want)
			}
			tally[fmt.Sprint(got.Allowed, got.Delay > 0)]++
		}
		if !slices.Equal(inList, one) {
			t.Fatalf("step %d: observed:\n%s\nalone:\n%s", step, strings.Join(inList, "\n"), strings.Join(one, "\n"))
		}
		inList, one = nil, nil
		time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
	}
	if tally["true false"] < 100 || tally["true true"] < 100 || tally["false false"] < 100 {
		t.Errorf("premise: %v", tally)
	}
}

// If the store does not answer, the caller's OnError decides. A block applies to the requests of a list as well, and a
// list is observed.
func TestEachBroughtOtherwise(t *testing.T) {
	t.Parallel()
	plan := plantest.Of(t, sluice.Limit{Count: 3, Period: time.Hour})
	down, ds := errors.New("connection refused"), make([]Decision, 2)
	e := NewEngine(broken(down), nil)
	e.DecideEach(t.Context(), []*Request{{Subject: e.Adhoc("a", "x", plan, sluice.Allow)}, {Subject: e.Adhoc("a", "x", plan, sluice.Deny)}}, ds)
	if !ds[0].Allowed || !ds[0].Degraded || ds[0].Err != down || ds[1].Allowed || !ds[1].Unavailable || ds[1].Results[0].Rule != "a" {
		t.Errorf("%+v", ds)
	}

	e = NewEngine(memory.New(), nil)
	costly := &Request{Subject: e.Adhoc("a", "costly", plan, sluice.Allow), Cost: 3}
	if d := pass(t, e, costly); d.Results[0].From != "caller" || e.Decide(t.Context(), costly).Allowed {
		t.Errorf("%+v", d)
	}
	one, other := e.Adhoc("a", "one", plan, sluice.Allow), e.Adhoc("a", "other", plan, sluice.Allow)
	reqs := []*Request{{Subject: one}, {Subject: other}}
	seen := 0
	e.Observe(func(_ context.Context, o *Observation) {
		if o.Key(0) != [...]*Subject{one, other}[seen].Key() {
			t.Errorf("observation %d is of %s", seen, o.Key(0))
		}
		seen++
	})
	if e.DecideEach(t.Context(), reqs, ds); seen != 2 {
		t.Errorf("%d were observed of 2", seen)
	}
	e.observers = nil
	ok(t, one.Block(time.Now().Add(time.Hour)))
	if e.DecideEach(t.Context(), reqs, ds); ds[0].Allowed || ds[0].Blocked != "a" || !ds[1].Allowed {
		t.Errorf("one is blocked: %+v", ds)
	}
	one.Unblock()
	var reused Subject
	one.AdhocInto(&reused, "two")
	ok(t, reused.Block(time.Now().Add(time.Hour)))
	one.AdhocInto(&reused, "six")
	if all := e.Blocks(); len(all) != 1 || all[0].Key != e.Adhoc("a", "two", plan, sluice.Allow).Key() {
		t.Errorf("two is blocked: %+v", all)
	}
}

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
				t.Error(summary(d))
			}
			if !d.Repeated {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 || remains(t, e, "a") != 99 || remains(t, e, "b") != 49 {
		t.Errorf("%d requests were not repeated; %d of a and %d of b are left", first.Load(), remains(t, e, "a"), remains(t, e, "b"))
	}
}

// The keys of callers' limits differ from each other, and from the keys of rules and of request IDs.
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
		var k parts.Keys
		if once := onceCharge(&k, []byte(key), one).Key; !strings.HasPrefix(once, "{"+one+"}!/") {
			t.Errorf("the key of the request ID is in another slot: %q", once)
		}
	})
}
