package storetest_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/storetest"
)

// The model conforms to the contract of [sluice.Store], and decides as the kernels do.
func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) sluice.Store { return new(storetest.Model) })
	storetest.RunTimed(t, func(*testing.T) storetest.TimedStore { return new(storetest.Model) })
	storetest.Differential(t, new(storetest.Model), plantest.NewKernels(), 10_000, 1)
}

// forgetful is a store with a fault that shows only sometimes.
type forgetful struct{ *plantest.Kernels }

func (f forgetful) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := f.Kernels.TakeAt(ctx, now, charges, receipts)
	for i, r := range receipts {
		if charges[i].Plan.Kernel == kernel.Window && r.Prev > 3 && len(charges) > 6 {
			receipts[i].Prev--
		}
	}
	return err
}

// failure is a test that is expected to fail.
type failure struct {
	testing.TB
	message string
}

func (f *failure) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestDifferentialFails(t *testing.T) {
	t.Parallel()
	f := &failure{TB: t}
	var group sync.WaitGroup
	group.Go(func() {
		storetest.Differential(f, new(storetest.Model), forgetful{plantest.NewKernels()}, 5000, 9)
	})
	group.Wait()
	for _, want := range []string{"seed 9, step ", "the receipts differ", "sliding_window_counter", "cost ", ", committed"} {
		if !strings.Contains(f.message, want) {
			t.Errorf("the report does not have %q:\n%s", want, f.message)
		}
	}
}
