package lease

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// A rule changes while processes hold leases of it, at another moment in each: nothing passes above what the
// old limit and the new one admit, and within a second nothing is held any more that is of no use.
func TestRuleChanges(t *testing.T) {
	bucket := sluice.Limit{Count: 2_000, Period: time.Second}
	window := sluice.Limit{Algorithm: sluice.FixedWindow, Count: 100_000, Period: time.Minute}
	with := func(l sluice.Limit, change func(*sluice.Limit)) *sluice.Limit {
		change(&l)
		return &l
	}
	for _, c := range []struct {
		name string
		was  sluice.Limit
		is   *sluice.Limit // nil: the rule is removed
		how  sluice.Consistency
		new  bool // counts from zero
	}{
		{"strict", bucket, &bucket, sluice.Strict, false},
		{"strict, a window", window, &window, sluice.Strict, false},
		{"removed", bucket, nil, 0, false},
		{"removed, a window", window, nil, 0, false},
		{"less", bucket, with(bucket, func(l *sluice.Limit) { l.Count = 300 }), sluice.Leased, true},
		{"more", bucket, with(bucket, func(l *sluice.Limit) { l.Count = 9_000 }), sluice.Leased, true},
		{"less of a window", window, with(window, func(l *sluice.Limit) { l.Count = 1_500 }), sluice.Leased, false},
		{"less of a window, strict", window, with(window, func(l *sluice.Limit) { l.Count = 1_500 }), sluice.Strict, false},
		{"less burst", *with(bucket, func(l *sluice.Limit) { l.Burst = 3_000 }), with(bucket, func(l *sluice.Limit) { l.Burst = 1_000 }), sluice.Leased, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute) // the beginning of a window
				was := plan(t, c.was)
				var is *sluice.Plan
				if c.is != nil {
					is = plan(t, *c.is)
				}
				testRuleChanges(t, was, is, c.how)
				if is != nil && c.new == (is.Fingerprint == was.Fingerprint) {
					t.Errorf("%v counts anew: not %v", is, c.new)
				}
			})
		})
	}
}

func testRuleChanges(t *testing.T, was, is *sluice.Plan, how sluice.Consistency) {
	const nodes, perSecond, swapFrom, swapFor, lasts = 4, 3_000, 1200 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second
	shared := &far{store: memory.New(), way: time.Millisecond, dice: newDice(t)}
	var mu sync.Mutex
	var old, fresh []event
	leased := 0
	start := time.Now()
	var all [nodes]*Store
	var swaps [nodes]time.Time
	for i := range all {
		all[i] = New(shared)
		defer all[i].Close()
		swaps[i] = start.Add(swapFrom + time.Duration(shared.dice.below(int64(swapFor))))
	}
	swapped := start.Add(swapFrom + swapFor)
	var asking sync.WaitGroup
	for next := start; next.Sub(start) < lasts; next = next.Add(shared.dice.pause(perSecond)) {
		time.Sleep(time.Until(next))
		n := shared.dice.below(nodes)
		c := [1]sluice.Charge{{Key: "hot", Plan: was, Cost: 1, Consistency: sluice.Leased}}
		events := &old
		if time.Now().After(swaps[n]) {
			if is == nil {
				continue
			}
			c[0].Plan, c[0].Consistency, events = is, how, &fresh
		}
		asking.Go(func() {
			var r [1]sluice.Receipt
			if err := all[n].TakeWithin(t.Context(), time.Second, c[:], r[:]); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if r[0].Origin == sluice.ByLease && events == &old {
				leased++
			}
			if r[0].Fits {
				*events = append(*events, event{r[0].Now, 1})
			}
		})
	}
	asking.Wait()
	if leased < perSecond/2 {
		t.Errorf("premise: only %d were leased", leased)
	}
	if over := replay(was, old); over > 0 {
		t.Errorf("%d passed above the old limit", over)
	}
	switch {
	case is == nil:
	case is.Fingerprint != was.Fingerprint: // counts of their own
		if over := replay(is, fresh); over > 0 {
			t.Errorf("%d passed above the new limit", over)
		}
	case is == was || is.Limit == was.Limit:
		if over := replay(was, append(old, fresh...)); over > 0 {
			t.Errorf("%d passed above the limit of both", over)
		}
	default: // a smaller one, of which what was reserved of the larger may be spent for the horizon
		both := append(old, fresh...)
		if over := replay(was, both); over > 0 {
			t.Errorf("%d passed above the larger limit", over)
		}
		// The store forgets at once what a bucket has had above a smaller burst, and by then more may have
		// been spent: so what follows is looked at by itself.
		end := swapped.Add(Horizon).UnixMicro()
		late := slices.DeleteFunc(slices.Clone(fresh), func(e event) bool { return e.at <= end })
		if over := replay(is, late); over > 0 || len(late) == 0 && is.Kernel == sluice.Meter {
			t.Errorf("of %d that passed after the horizon %d were above the new limit", len(late), over)
		}
	}
	if how == sluice.Leased {
		for _, s := range all {
			s.Close()
		}
	}
	for i, s := range all {
		if held := len(s.all()); held > 0 && how != sluice.Leased {
			t.Errorf("process %d holds %d leases %v after the change", i, held, time.Since(swapped))
		}
	}
	// A bucket has drained by now; a window has what passed and what nobody has given back.
	if passed := int64(len(old) + len(fresh)); was.Kernel == sluice.Window && (is == nil || is.Limit == was.Limit) {
		if counted := used(t, shared.store, "hot", was); counted != passed {
			t.Errorf("the window has %d, and %d have passed", counted, passed)
		}
	}
}
