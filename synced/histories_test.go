package synced_test

import (
	"cmp"
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
)

func TestHistories(t *testing.T) {
	t.Parallel()
	fresh := func() faultstore.TakerAt { return memory.New() }
	faultstore.Play(t, "testdata/histories.txt", fresh, func(t *testing.T, sv *faultstore.Store, settings map[string]string) faultstore.Subject {
		processes, _ := strconv.Atoi(cmp.Or(settings["processes"], "1"))
		f := newFleet(processes, sv)
		var takes []func(time.Duration, []sluice.Charge, []sluice.Receipt) error
		for _, s := range f.stores {
			takes = append(takes, func(wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
				return s.TakeWithin(context.Background(), min(wait, 50*time.Millisecond), charges, receipts)
			})
		}
		status := func() map[string]int { return map[string]int{"keys": f.stores[0].Keys()} }
		return faultstore.Subject{Takes: takes, Status: status, Close: f.close}
	})
}
