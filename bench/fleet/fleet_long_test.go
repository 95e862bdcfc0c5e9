//go:build long

package fleet

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLongSimulation writes the tables and pictures if SLUICE_SIMULATION is "write". Otherwise, it simulates a few
// fleets. In both cases, it fails if a fleet exceeds the limit.
func TestLongSimulation(t *testing.T) {
	nodes, horizons := []int{2, 4}, []time.Duration{100 * time.Millisecond}
	write := os.Getenv("SLUICE_SIMULATION") == "write"
	if write {
		nodes, horizons = []int{2, 4, 10, 30, 100, 300, 1000}, []time.Duration{2, 5, 10, 25, 50, 100, 250}
		for i := range horizons {
			horizons[i] *= time.Millisecond
		}
	}
	var text strings.Builder
	for _, demand := range []float64{0.5, 1, 2} {
		calls, under := tableOf("calls a decision", nodes, horizons), tableOf("under, %", nodes, horizons)
		for i, n := range nodes {
			for j, h := range horizons {
				var o outcome
				synctest.Test(t, func(t *testing.T) { o = fleet{n, rate, h, demand, lasts}.simulate(t) })
				if o.over > 0 || o.admitted == 0 {
					t.Errorf("%d nodes, horizon %v, demand %v: %+v", n, h, demand, o)
				}
				calls.values[i][j], under.values[i][j] = o.callsADecision(), o.under()
			}
		}
		fmt.Fprintf(&text, "\n## Demand of %g times the limit\n\n%s\n%s", demand, calls, under)
		if write {
			for _, err := range []error{
				calls.draw(fmt.Sprintf("../fleet-calls-%g.svg", demand), fmt.Sprintf("Calls to the shared store per decision, demand of %g times the limit", demand)),
				under.draw(fmt.Sprintf("../fleet-under-%g.svg", demand), fmt.Sprintf("Denied although one bucket would admit it, demand of %g times the limit", demand)),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			fmt.Fprintf(&text, "\n![calls](fleet-calls-%g.svg)\n![under](fleet-under-%g.svg)\n", demand, demand)
		}
	}
	text.WriteString(besideReal(t, write))
	t.Log(text.String())
	if write && !t.Failed() {
		head := "# Fleets in virtual time\n\nMade by `make simulation`: the code of package lease, in several processes that share one store, in the virtual time of testing/synctest. A call to the store takes " + trip.String() +
			". The requests are for one key with a limit of " + fmt.Sprint(rate) + " units a second. They come at random times, each in a random process. The horizon is a quarter of the time in which the burst drains. " +
			"The numbers are for " + lasts.String() + ", after a warm-up of " + lasts.String() + " that uses up the burst if the demand is above the limit. " +
			"No fleet exceeds the limit: one exact bucket would admit every request that the fleet has admitted, at the same times.\n"
		if err := os.WriteFile("../RESULTS-fleet.md", []byte(head+text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
