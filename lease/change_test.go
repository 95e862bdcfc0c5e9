package lease

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/kernel"
)

// A rule changes while processes have leases for it, at a different time in each process. No more passes than the old
// limit and the new one admit. In the end, no process has a lease for a rule that is now strict or was removed.
func TestRuleChanges(t *testing.T) {
	t.Parallel()
	bucket := second(2_000)
	minute := func(n int64) sluice.Limit {
		return sluice.Limit{Algorithm: sluice.FixedWindow, Count: n, Period: time.Minute}
	}
	for _, c := range []struct {
		name    string
		was, is sluice.Limit // a new count of 0 means that the rule is removed
		how     sluice.Consistency
	}{
		{"strict", bucket, bucket, sluice.Strict},
		{"strict, a window", minute(100_000), minute(100_000), sluice.Strict},
		{"removed", bucket, sluice.Limit{}, sluice.Strict},
		{"removed, a window", minute(100_000), sluice.Limit{}, sluice.Strict},
		{"less", bucket, second(300), sluice.Leased},
		{"more", bucket, second(9_000), sluice.Leased},
		{"less of a window", minute(100_000), minute(1_500), sluice.Leased},
		{"less of a window, strict", minute(100_000), minute(1_500), sluice.Strict},
		{"less burst", burst(2_000, 3_000), burst(2_000, 1_000), sluice.Leased},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			leasing(t, time.Millisecond, func(t *testing.T, shared *faultstore.Store, s *Store) {
				var is *sluice.Plan
				if c.is.Count > 0 {
					is = plan(t, c.is)
				}
				testRuleChanges(t, shared, s, plan(t, c.was), is, c.how)
			})
		})
	}
}

func testRuleChanges(t *testing.T, shared *faultstore.Store, first *Store, was, is *sluice.Plan, how sluice.Consistency) {
	const nodes, perSecond, swapFrom, swapFor, lasts = 4, 3_000, 1200 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second
	chance := newDice(t)
	var mu sync.Mutex
	var old, fresh []event
	leased := 0
	start := time.Now()
	all := []*Store{first}
	swaps := []time.Time{start.Add(swapFrom)}
	for range nodes - 1 {
		s := New(shared)
		defer s.Close()
		all, swaps = append(all, s), append(swaps, start.Add(swapFrom+time.Duration(chance.below(int64(swapFor)))))
	}
	swapped := start.Add(swapFrom + swapFor)
	var asking sync.WaitGroup
	for next := start; next.Sub(start) < lasts; next = next.Add(chance.pause(perSecond)) {
		time.Sleep(time.Until(next))
		n := chance.below(nodes)
		p, consistency, events := was, sluice.Leased, &old
		if time.Now().After(swaps[n]) {
			p, consistency, events = is, how, &fresh
		}
		if p == nil {
			continue
		}
		asking.Go(func() {
			r := take(t, all[n], p, 1, consistency)
			mu.Lock()
			defer mu.Unlock()
			if r.Origin == sluice.ByLease && events == &old {
				leased++
			}
			if r.Fits {
				*events = append(*events, event{r.Now, 1})
			}
		})
	}
	asking.Wait()
	if leased < perSecond/2 {
		t.Errorf("premise: only %d units were leased", leased)
	}
	within := func(what string, p *sluice.Plan, events []event) {
		t.Helper()
		if over := replay(p, events); over > 0 {
			t.Errorf("%d passed above %s", over, what)
		}
	}
	within("the old limit", was, old)
	both := append(slices.Clone(old), fresh...)
	switch {
	case is == nil:
	case is.Fingerprint != was.Fingerprint: // separate counts
		within("the new limit", is, fresh)
	case is.Limit == was.Limit:
		within("the unchanged limit", was, both)
	default: // a smaller limit: units that were reserved under the larger limit may be spent for the horizon
		within("the larger limit", was, both)
		// If the burst becomes smaller, the store at once forgets the level above it, although more units may have been
		// spent. So the charges after the horizon are checked separately.
		end := swapped.Add(Horizon).UnixMicro()
		late := slices.DeleteFunc(fresh, func(e event) bool { return e.at <= end })
		if within("the new limit, after the horizon", is, late); len(late) == 0 && is.Kernel == kernel.Meter {
			t.Error("nothing passed after the horizon")
		}
	}
	for i, s := range all {
		if held := len(s.all()); held > 0 && how != sluice.Leased {
			t.Errorf("process %d holds %d leases %v after the change", i, held, time.Since(swapped))
		}
	}
	// A bucket has drained by now. A window counts the units that have passed, and no others, if the processes have
	// given back all other units.
	if was.Kernel == kernel.Window && (is == nil || is.Limit == was.Limit) {
		if counted := shared.Used(t, "k", was); counted != int64(len(both)) {
			t.Errorf("the window counts %d units, and %d have passed", counted, len(both))
		}
	}
}
