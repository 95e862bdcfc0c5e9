//go:build long

package fleet

import (
	"fmt"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// table has a value for each number of processes and horizon.
type table struct {
	what     string
	nodes    []int
	horizons []time.Duration
	values   [][]float64
}

func tableOf(what string, nodes []int, horizons []time.Duration) *table {
	t := &table{what, nodes, horizons, nil}
	for range nodes {
		t.values = append(t.values, make([]float64, len(horizons)))
	}
	return t
}

func (t *table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s, by horizon |", t.what)
	for _, h := range t.horizons {
		fmt.Fprintf(&b, " %v |", h)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.horizons)) + "\n")
	for i, n := range t.nodes {
		fmt.Fprintf(&b, "| %d processes |", n)
		for _, v := range t.values[i] {
			fmt.Fprintf(&b, " %.2g |", v)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// draw writes a picture of the table.
func (t *table) draw(file, title string) error {
	chart := plot.New()
	chart.Title.Text, chart.X.Label.Text, chart.Y.Label.Text = title, "horizon, ms", t.what
	chart.X.Scale, chart.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	chart.Y.Min, chart.Legend.Top = 0, true
	chart.Add(plotter.NewGrid())
	for i, n := range t.nodes {
		var points plotter.XYs
		for j, h := range t.horizons {
			points = append(points, plotter.XY{X: float64(h.Milliseconds()), Y: t.values[i][j]})
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		chart.Add(line, marks)
		chart.Legend.Add(fmt.Sprintf("%d processes", n), line, marks)
	}
	return chart.Save(18*vg.Centimeter, 10*vg.Centimeter, file)
}
