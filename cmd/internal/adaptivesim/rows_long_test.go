//go:build long

package adaptivesim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/adaptive"
)

func TestLongSimulation(t *testing.T) { testRows(t, false, 5) }

// TestLongRivals prints the results of each limit for each row: answers in time a second, percent of the critical
// requests served, and the 99th percentile of the latency.
func TestLongRivals(t *testing.T) {
	names := []string{"none", "400", "tuned", "gradient2", "envoy", "failsafe", "sluice"}
	fmt.Printf("| row | %s |\n|---%s|\n", strings.Join(names, " | "), strings.Repeat("|---", len(names)))
	for _, r := range rows {
		if !strings.Contains(r.name, *only) {
			continue
		}
		fmt.Printf("| %s ", r.name)
		for _, name := range names {
			if name == "failsafe" && r.to > 1000 && r.up == nil {
				fmt.Print("| – ")
				continue
			}
			_, got := play(t, r, name, 1)
			fmt.Printf("| %.4g (%.2f), %v ", got.goodput, got.served[adaptive.Critical-1], got.p99.Round(time.Millisecond))
		}
		fmt.Println("|")
	}
}
