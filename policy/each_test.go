package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// TestEachBrought decides about lists of subjects with limits of the caller's, among others, as
// about each alone, and observers are told the same in the same order.
func TestEachBrought(t *testing.T) {
	for name, watched := range map[string]bool{"unobserved": false, "observed": true} {
		t.Run(name, func(t *testing.T) { eachBrought(t, watched) })
	}
}

// observed returns what an observer of e is told, as text.
func observed(e *Engine) *[]string {
	var all []string
	e.Observe(func(_ context.Context, o *Observation) {
		r := o.Request
		text := fmt.Sprint(r.Path, r.Cost, r.Mode, r.ID, r.Subject != nil, o.Client(), o.Policy() == e.Policy(), plain(o.Decision))
		for i := range o.Decision.Results {
			text += fmt.Sprint(" ", o.RuleIndex(i), " ", o.Key(i), " ", o.Shown(i))
		}
		all = append(all, text)
	})
	return &all
}

func eachBrought(t *testing.T, watched bool) {
	synctest.Test(t, func(t *testing.T) {
		seed := seed.Of(t)
		dice := rand.New(rand.NewPCG(seed, 1))
		p := parse(t, "rules: [{name: a, limit: 20/hour, count: {status: [401]}}]")
		listed, alone := NewEngine(memory.New(), p), NewEngine(memory.New(), p)
		var inList, one *[]string
		if watched {
			inList, one = observed(listed), observed(alone)
		}
		var plans []*sluice.Plan
		for _, l := range []sluice.Limit{
			{Count: 10, Period: time.Minute, Burst: 3}, {Count: 5, Period: time.Minute, Algorithm: sluice.FixedWindow},
			{Count: 60, Period: time.Minute, Burst: 5, Algorithm: sluice.LeakyBucket}, {Count: 4, Period: time.Minute, Algorithm: sluice.SlidingWindowLog},
		} {
			plan, err := sluice.NewPlan(l)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, plan)
		}
		ds, tally := make([]Decision, 40), map[string]int{}
		for step := range 200 {
			mine, others := make([]*Request, 1+dice.IntN(40)), make([]*Request, 40)
			for i := range mine {
				r := get("/")
				if kind := dice.IntN(9); kind > 0 {
					r = &Request{Cost: dice.Int64N(4), Mode: Mode(dice.IntN(12) / 10)}
					if kind == 1 {
						r.ID = fmt.Sprint(dice.IntN(5))
					}
					n := dice.IntN(len(plans))
					key := fmt.Sprint(n, "/", dice.IntN(3))
					r.Subject = listed.Adhoc("brought", key, plans[n], sluice.Allow)
					other := *r
					other.Subject = alone.Adhoc("brought", key, plans[n], sluice.Allow)
					mine[i], others[i] = r, &other
					continue
				}
				mine[i], others[i] = r, r
			}
			listed.DecideEach(t.Context(), mine, ds[:len(mine)])
			for i := range mine {
				want, got := alone.Decide(t.Context(), others[i]), ds[i].Clone()
				if want.Unsettled() != got.Unsettled() {
					t.Fatalf("seed %d, step %d, %d: to be settled: %t, alone %t", seed, step, i, got.Unsettled(), want.Unsettled())
				}
				if (want.queued == nil) != (got.queued == nil) {
					t.Fatalf("seed %d, step %d, %d: queued: %t, alone %t", seed, step, i, got.Queued(), want.Queued())
				}
				want.queued, got.queued = nil, nil
				want.unsettled, got.unsettled = nil, nil
				if len(want.Results)+len(got.Results) == 0 {
					want.Results, got.Results = nil, nil
				}
				if !reflect.DeepEqual(want, got) {
					t.Fatalf("seed %d, step %d, %d: %+v\nalone: %+v", seed, step, i, got, want)
				}
				tally[fmt.Sprint(got.Allowed, got.Delay > 0)]++
			}
			if watched && !reflect.DeepEqual(*inList, *one) {
				t.Fatalf("seed %d, step %d: observed:\n%s\nalone:\n%s", seed, step, strings.Join(*inList, "\n"), strings.Join(*one, "\n"))
			}
			if watched {
				*inList, *one = nil, nil
			}
			time.Sleep(time.Duration(dice.IntN(5000)) * time.Millisecond)
		}
		if tally["true false"] < 100 || tally["true true"] < 100 || tally["false false"] < 100 {
			t.Errorf("premise, seed %d: %v", seed, tally)
		}
	})
}

// A store that does not answer leaves it to what the caller has said, and a block holds in a list,
// too, which is observed.
func TestEachBroughtOtherwise(t *testing.T) {
	plan, err := sluice.NewPlan(sluice.Limit{Count: 3, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := one.Block(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if e.DecideEach(t.Context(), reqs, ds); ds[0].Allowed || ds[0].Blocked != "a" || !ds[1].Allowed {
		t.Errorf("one is blocked: %+v", ds)
	}
}
