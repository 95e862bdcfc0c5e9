package main

import (
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// picture is a chart of series of contenders of growing size.
type picture struct {
	file, title, x string
	works          []string
}

// pictures has the charts by work: the report shows a chart under the heading of its work.
var pictures = map[string]picture{
	patternRules: {"growth-rules.svg", "Cost of a decision against the number of rules", "rules, of which one applies", []string{literalRules, patternRules}},
	growingKeys:  {"growth-keys.svg", "Cost of a decision against the number of keys", "keys, all of them known", []string{growingKeys}},
}

// draw writes the pictures of the works that were measured.
func (r report) draw(dir string) error {
	for _, p := range pictures {
		if len(r.results.of(p.works[0])) == 0 {
			continue
		}
		if err := p.draw(filepath.Join(dir, p.file), r.results); err != nil {
			return err
		}
	}
	return nil
}

func (p picture) draw(file string, rs results) error {
	chart := plot.New()
	chart.Title.Text, chart.X.Label.Text, chart.Y.Label.Text = p.title, p.x, "CPU ns per decision"
	chart.X.Scale, chart.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	chart.Y.Min, chart.Legend.Top, chart.Legend.Left = 0, true, true
	chart.Add(plotter.NewGrid())
	for i, s := range p.series(rs) {
		line, points, err := plotter.NewLinePoints(s.points)
		if err != nil {
			return err
		}
		line.Color, points.Color, points.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		chart.Add(line, points)
		chart.Legend.Add(s.name, line, points)
	}
	chart.Y.Min, chart.Y.Max = 0, chart.Y.Max*1.3 // leaves room for the legend
	return chart.Save(18*vg.Centimeter, 10*vg.Centimeter, file)
}

type series struct {
	name   string
	points plotter.XYs
}

// series returns the medians of each series, in the order of the results.
func (p picture) series(rs results) (all []series) {
	for _, w := range p.works {
		for _, r := range rs.of(w) {
			g := r.start.(grown)
			if !r.measured() {
				continue
			}
			if len(all) == 0 || all[len(all)-1].name != g.series {
				all = append(all, series{name: g.series})
			}
			y, _ := r.median("CPU ns")
			last := &all[len(all)-1]
			last.points = append(last.points, plotter.XY{X: float64(g.size), Y: y})
		}
	}
	return all
}
