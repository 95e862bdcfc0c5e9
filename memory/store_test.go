package memory_test

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) sluice.Store { return memory.New() })
}

func TestConformanceTimed(t *testing.T) {
	storetest.RunTimed(t, func(*testing.T) storetest.TimedStore { return memory.New() })
}

func TestDifferential(t *testing.T) {
	storetest.Differential(t, memory.New(), new(storetest.Model), 150_000, 1)
}
