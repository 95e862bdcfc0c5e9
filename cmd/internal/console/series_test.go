package console

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/telemetry"
)

// The method within sums up the steps that begin in a period, as a loop over all steps does.
func TestStepsWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 3, 1, 12, 0, 3, 0, time.UTC)
	for range 2000 {
		s := steps{step: telemetry.Step, begin: now.Truncate(telemetry.Step).Add(-9 * telemetry.Step), now: now, since: now.Add(-time.Duration(r.IntN(120)) * time.Second)}
		for i := range 10 {
			s.counts = append(s.counts, telemetry.Counts{uint64(i + 1)})
		}
		from := now.Add(time.Duration(r.IntN(160_000)-130_000) * time.Millisecond)
		to := from.Add(time.Duration(r.IntN(100_000)-10_000) * time.Millisecond)
		var want uint64
		var lasted time.Duration
		for i := range s.counts {
			if at := s.at(i); !at.Before(from) && at.Before(to) {
				want += uint64(i + 1)
				lasted += s.lasts(i)
			}
		}
		got, took := s.within(from, to)
		if got.Total() != want || took != lasted {
			t.Fatalf("from %v to %v: %d in %v, want %d in %v", from, to, got.Total(), took, want, lasted)
		}
	}
}

// The script of the first page has the outcomes of the chart in the same order and with the same names.
func TestChartScript(t *testing.T) {
	t.Parallel()
	script, err := assetFiles.ReadFile("assets/first.js")
	if err != nil {
		t.Fatal(err)
	}
	var order, names []string
	for _, s := range stacked {
		order, names = append(order, fmt.Sprintf("'%s'", s.Name)), append(names, fmt.Sprintf("'%s'", s.Word))
	}
	for variable, want := range map[string][]string{"order": order, "names": names} {
		if line := "const " + variable + " = [" + strings.Join(want, ", ") + "];"; !strings.Contains(string(script), line) {
			t.Errorf("first.js lacks %s", line)
		}
	}
}
