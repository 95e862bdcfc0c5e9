package policy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// awayStore is a shared store that is away as long as it is said to be.
type awayStore struct {
	sluice.Store
	away *atomic.Bool
}

func (s awayStore) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if s.away.Load() {
		return errors.New("connection refused")
	}
	return s.Store.Take(ctx, charges, receipts)
}

// While the shared store is away each instance shares its part of the limit among those who ask it, and
// when it is back all share the whole again: nobody who asks for less than their part loses anything, and
// in all there is no more than the limit and the burst that is lost with the store.
func TestShareAway(t *testing.T) {
	for n, all := range map[int][]float64{2: {19, 193}, 4: {7, 193}} {
		for _, steady := range all {
			t.Run(fmt.Sprintf("%d instances, %v a second", n, steady), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testShareAway(t, n, steady) })
			})
		}
	}
}

func testShareAway(t *testing.T, n int, steady float64) {
	const rate, settled, seconds = 200, 2, 5
	doc := sharedBy("200/second")
	doc.Rules[0].OnError = "local"
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	var f fleet
	shared := memory.New()
	for range n {
		store := failover.New(failover.Bulkhead(awayStore{shared, &away}, 0), failover.Config{Instances: n, Logger: slog.New(slog.DiscardHandler)})
		defer store.Close()
		f = append(f, policy.NewEngine(store, p))
	}
	crowd := []*caller{
		{name: "flood", weight: 1, rate: 593}, {name: "steady", weight: 1, rate: steady, phase: 0.5},
		{name: "pro", tier: "pro", weight: 3, rate: 3 * steady, phase: 0.3},
	}
	for _, isAway := range []bool{false, true, false} {
		away.Store(isAway)
		total := f.serve(t, crowd, seconds*time.Second)
		for s, passed := range total {
			if s >= settled && (passed < 0.97*rate || passed > 1.01*rate) {
				t.Errorf("away %v: in second %d %v passed: %v", isAway, s, passed, total)
			}
		}
		for _, c := range crowd {
			want := min(c.rate, rate*c.weight/5)
			if c.name == "flood" {
				want = max(want, rate-4*steady)
			}
			if got := c.got(settled, seconds); got < 0.95*want-1 {
				t.Errorf("away %v: %s got %v a second, and its part is %v: %v of %v", isAway, c.name, got, want, c.passed, c.asked)
			}
		}
	}
}

// What on_error says of a limit that is shared holds for all who share it.
func TestShareOnError(t *testing.T) {
	for onError, want := range map[string]bool{"allow": true, "deny": false} {
		synctest.Test(t, func(t *testing.T) {
			doc := sharedBy("10/second")
			doc.Rules[0].OnError = onError
			p, err := policy.Compile(doc)
			if err != nil {
				t.Fatal(err)
			}
			var away atomic.Bool
			away.Store(true)
			store := failover.New(failover.Bulkhead(awayStore{memory.New(), &away}, 0), failover.Config{Instances: 2, Logger: slog.New(slog.DiscardHandler)})
			defer store.Close()
			e := policy.NewEngine(store, p)
			for i := range 100 {
				d := e.Decide(t.Context(), tenantOf("a"))
				if d.Allowed != want || !d.Degraded || !want && d.RetryAfter != time.Second {
					t.Fatalf("%s, request %d: %+v", onError, i, d)
				}
			}
			away.Store(false)
			time.Sleep(3 * time.Second)
			passed := 0
			for range 100 {
				if e.Decide(t.Context(), tenantOf("a")).Allowed {
					passed++
				}
			}
			if passed < 7 || passed > 10 { // of the burst, without the reserve
				t.Errorf("%s: %d passed when the store was back", onError, passed)
			}
		})
	}
}

// Of a limit that is small, a part of a part is a request in many seconds, and comes all the same.
func TestShareAwayOfLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tenants, seconds = 12, 60
		doc := sharedBy("10/second")
		doc.Rules[0].OnError = "local"
		p, err := policy.Compile(doc)
		if err != nil {
			t.Fatal(err)
		}
		var away atomic.Bool
		away.Store(true)
		var f fleet
		for range 4 {
			store := failover.New(failover.Bulkhead(awayStore{memory.New(), &away}, 0), failover.Config{Instances: 4, Logger: slog.New(slog.DiscardHandler)})
			defer store.Close()
			f = append(f, policy.NewEngine(store, p))
		}
		var crowd []*caller
		for i := range tenants {
			crowd = append(crowd, &caller{name: fmt.Sprint(i), weight: 1, rate: 4.1, phase: float64(i) / tenants})
		}
		total := f.serve(t, crowd, seconds*time.Second)
		if got := mean(total[10:]); got < 9 || got > 10.5 {
			t.Errorf("%v a second passed of 10", got)
		}
		for _, c := range crowd {
			if got, part := c.got(10, seconds), 10./tenants; got < 0.8*part {
				t.Errorf("%s got %.3f a second, and its part is %.3f", c.name, got, part)
			}
		}
	})
}
