// Command letpass sends six minutes of demand to each algorithm, and draws the requests that pass, for
// docs/algorithms.md: go run ./letpass ../docs
//
// The decisions are made by the memory store, with a simulated clock.
package main

import (
	"context"
	"fmt"
	"image/color"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

const (
	count  = 60
	period = time.Minute
	lasts  = 6 * time.Minute
)

// start is the beginning of a minute.
var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// demand returns the times of a client's requests: a burst before and after the end of the first minute, then few
// requests, then twice the limit for two minutes, and then half the limit.
func demand() (at []time.Duration) {
	steady := func(from, to, every time.Duration) {
		for t := from; t < to; t += every {
			at = append(at, t)
		}
	}
	steady(50*time.Second, 70*time.Second, 150*time.Millisecond)
	steady(90*time.Second, 2*time.Minute, 5*time.Second)
	steady(2*time.Minute, 4*time.Minute, 500*time.Millisecond)
	steady(4*time.Minute, lasts, 2*time.Second)
	return at
}

// passage has the results of a demand under one algorithm.
type passage struct {
	passed  []time.Duration // when requests passed, in order
	refused int
	longest time.Duration // the longest time that a request waited
}

func play(l sluice.Limit, asked []time.Duration) (p passage, err error) {
	plan, err := sluice.NewPlan(l)
	if err != nil {
		return p, err
	}
	store := memory.New()
	charges, receipts := []sluice.Charge{{Key: "client", Plan: plan, Cost: 1}}, make([]sluice.Receipt, 1)
	for _, at := range asked {
		if err := store.TakeAt(context.Background(), start.Add(at).UnixMicro(), charges, receipts); err != nil {
			return p, err
		}
		d := plan.Decide(1, receipts[0])
		if !d.Allowed {
			p.refused++
			continue
		}
		p.passed = append(p.passed, at+d.Delay)
		p.longest = max(p.longest, d.Delay)
	}
	return p, nil
}

// most returns the largest number of requests that passed within any time of the given length.
func (p passage) most(within time.Duration) (most int) {
	first := 0
	for i, at := range p.passed {
		for p.passed[first] <= at-within {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// row returns a line of the table.
func (p passage) row(a sluice.Algorithm) string {
	held := "–"
	if p.longest > 0 {
		held = fmt.Sprintf("%.0f s", p.longest.Seconds())
	}
	return fmt.Sprintf("| `%v` | %d | %d | %d | %s |\n", a, len(p.passed), p.most(period), p.most(time.Second), held)
}

// bars counts the times in intervals of five seconds.
func bars(at []time.Duration) plotter.Values {
	const each = 5 * time.Second
	v := make(plotter.Values, lasts/each)
	for _, t := range at {
		if t < lasts {
			v[t/each]++
		}
	}
	return v
}

func draw(file, title string, asked []time.Duration, p passage) error {
	chart := plot.New()
	chart.Title.Text, chart.X.Label.Text, chart.Y.Label.Text = title, "minutes", "requests in 5 seconds"
	chart.Legend.Top = true
	chart.BackgroundColor = color.White
	width := vg.Centimeter * 14.5 / vg.Length(lasts/(5*time.Second))
	var ticks []plot.Tick
	for m := range int(lasts/time.Minute) + 1 {
		ticks = append(ticks, plot.Tick{Value: float64(m)*12 - 0.5, Label: fmt.Sprint(m)})
	}
	chart.X.Tick.Marker = plot.ConstantTicks(ticks)
	for _, s := range []struct {
		name string
		at   []time.Duration
		fill color.Color
	}{
		{"asked", asked, color.RGBA{0xd9, 0xdc, 0xe1, 0xff}},
		{"passed", p.passed, color.RGBA{0x1f, 0x6f, 0xb4, 0xff}},
	} {
		b, err := plotter.NewBarChart(bars(s.at), width)
		if err != nil {
			return err
		}
		b.Color, b.LineStyle.Width = s.fill, 0
		chart.Add(b)
		chart.Legend.Add(s.name, b)
	}
	chart.X.Min, chart.X.Max = ticks[0].Value, ticks[len(ticks)-1].Value
	return chart.Save(18*vg.Centimeter, 6*vg.Centimeter, file)
}

func run(dir string) error {
	asked := demand()
	var table strings.Builder
	fmt.Fprintf(&table, "| Algorithm | passed of %d | most in any minute | most in any second | longest wait |\n|---|---|---|---|---|\n", len(asked))
	for _, a := range sluice.Algorithms() {
		l := sluice.Limit{Count: count, Period: period, Algorithm: a}
		title := fmt.Sprintf("%v: 60/minute", a)
		if a <= sluice.GCRA {
			l.Burst = 20
			title += " burst 20"
		}
		p, err := play(l, asked)
		if err != nil {
			return fmt.Errorf("%v: %w", a, err)
		}
		// These algorithms have no picture, because it would look the same as another one.
		if a == sluice.GCRA || a == sluice.SlidingWindowLogExact {
			fmt.Fprint(&table, p.row(a))
			continue
		}
		if err := draw(filepath.Join(dir, "letpass-"+a.String()+".svg"), title, asked, p); err != nil {
			return err
		}
		fmt.Fprint(&table, p.row(a))
	}
	return written(filepath.Join(dir, "algorithms.md"), table.String())
}

// written replaces the table between two comments in a document.
func written(file, table string) error {
	const begin, end = "<!-- letpass -->\n", "<!-- /letpass -->"
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: found no table between %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+table+end+after), 0o644)
}

func main() {
	log.SetFlags(0)
	dir := "../docs"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(dir); err != nil {
		log.Fatal(err)
	}
}
