package failover_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
)

// knowing decides one key by what it knows.
type knowing struct {
	prompt
	origin sluice.Origin
}

func (k knowing) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if charges[0].Key == "known" {
		charges[0].Plan.Step(sluice.State{}, time.Now().UnixMicro(), charges[0].Cost, &receipts[0])
		receipts[0].Origin = k.origin
		return nil
	}
	return k.prompt.TakeWithin(ctx, wait, charges, receipts)
}

// What is decided without the server makes no store look alive that is away, and is not told as a
// decision of the server.
func TestKnownIsNoSignOfLife(t *testing.T) {
	for _, origin := range []sluice.Origin{sluice.ByLease, sluice.BySync} {
		t.Run(origin.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sv := newServer()
				told := 0
				s := failover.New(knowing{prompt{sv}, origin}, failover.Config{Logger: quiet(), Asked: func(time.Duration, error) { told++ }})
				defer s.Close()
				sv.set(unsent)
				p := plan(t, "10/day", sluice.FixedWindow)
				failures := 0
				for ; !s.Status().Degraded() && failures < 100; failures++ {
					for range 9 {
						if r := take(t, s, "known", p, sluice.Allow); r.Origin != origin || !r.Fits {
							t.Errorf("%+v", r)
						}
					}
					take(t, s, "k", p, sluice.Allow)
					synctest.Wait() // until the failure is counted
				}
				if st := s.Status(); failures > 20 || st.Shared != uint64(9*failures) || told != failures {
					t.Errorf("away after %d failures, %d told: %+v", failures, told, st)
				}
			})
		})
	}
}

// A share begins where this instance has counted last, as where the shared store was.
func TestShareOfWhatIsKnown(t *testing.T) {
	for origin, left := range map[sluice.Origin]int64{sluice.BySync: 9, sluice.ByLease: 10} {
		t.Run(origin.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sv := newServer()
				s := failover.New(knowing{prompt{sv}, origin}, failover.Config{Logger: quiet()})
				defer s.Close()
				p := plan(t, "10/day", sluice.FixedWindow)
				charge(t, s, sluice.Charge{Key: "known", Plan: p, Cost: 1, OnError: sluice.Local})
				sv.set(unsent)
				for !s.Status().Degraded() {
					take(t, s, "k", p, sluice.Allow)
				}
				r := charge(t, s, sluice.Charge{Key: "known", Plan: p, OnError: sluice.Local})
				if d := p.Decide(0, r[0]); d.Origin != sluice.ByLocalShare || d.Remaining != left {
					t.Errorf("%+v, want %d left", d, left)
				}
			})
		})
	}
}
