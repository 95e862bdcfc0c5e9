package answer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// degraded is a store of which it is said that a stand-in has decided.
type degraded struct{ *memory.Store }

func (s degraded) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := s.Store.Take(ctx, charges, receipts)
	for i := range receipts {
		receipts[i].Origin = sluice.ByLocalShare
	}
	return err
}

// A client that has left while a stand-in decided is refused, and keeps no place.
func TestInFlightLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "all", InFlight: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(degraded{memory.New()}, p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d := e.Decide(ctx, &policy.Request{Ends: true})
		if !d.Held() {
			t.Fatalf("%+v", d)
		}
		held := d
		Settle(ctx, &d, nil, func(ctx context.Context) { e.Refund(ctx, held) })
		if d.Allowed || d.Held() {
			t.Errorf("%+v", d)
		}
		time.Sleep(sluice.PlaceLasts / 2)
		if d := e.Decide(t.Context(), &policy.Request{}); !d.Allowed {
			t.Error("its place is taken")
		}
	})
}
