package lease_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
)

func TestHistories(t *testing.T) {
	t.Parallel()
	fresh := func() faultstore.TakerAt { return memory.New() }
	faultstore.Play(t, "testdata/histories.txt", fresh, func(_ *testing.T, sv *faultstore.Store, _ map[string]string) faultstore.Subject {
		s := lease.New(sv)
		take := func(wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
			return s.TakeWithin(context.Background(), wait, charges, receipts)
		}
		return faultstore.Subject{Takes: []func(time.Duration, []sluice.Charge, []sluice.Receipt) error{take}, Close: s.Close}
	})
}
