package show

import (
	"fmt"
	"html/template"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-analyze/charts"

	"github.com/sluicehq/sluice/internal/replay"
)

const (
	chartSteps = 120 // that a chart has at most
	chartRules = 6   // that have a line of their own
)

// What is drawn has these colors, which become variables of the page's style. So one drawing is for light
// and for dark ground.
var (
	inkX    = charts.Color{R: 1, A: 255}
	inkY    = charts.Color{R: 2, A: 255}
	inkGrid = charts.Color{R: 3, A: 255}
	inkLine = [...]charts.Color{{R: 10, A: 255}, {R: 11, A: 255}, {R: 12, A: 255}, {R: 13, A: 255}, {R: 14, A: 255}, {R: 15, A: 255}, {R: 16, A: 255}, {R: 17, A: 255}}
)

var variables = strings.NewReplacer(
	"rgb(1,0,0)", "var(--muted)", "rgb(2,0,0)", "var(--muted)", "rgb(3,0,0)", "var(--line)",
	"rgb(10,0,0)", "var(--ink-0)", "rgb(11,0,0)", "var(--ink-1)", "rgb(12,0,0)", "var(--ink-2)", "rgb(13,0,0)", "var(--ink-3)",
	"rgb(14,0,0)", "var(--ink-4)", "rgb(15,0,0)", "var(--ink-5)", "rgb(16,0,0)", "var(--ink-6)", "rgb(17,0,0)", "var(--ink-7)",
	"fill:rgba(10,0,0,0.2)", "fill:var(--ink-0);fill-opacity:.18", "fill:rgba(11,0,0,0.2)", "fill:var(--ink-1);fill-opacity:.3",
	";font-family:'Roboto Medium',sans-serif", "", "\nL ", "L", "\n", " ", ` xmlns:xlink="http://www.w3.org/1999/xlink"`, "",
)

// drawn is a chart for wide and for narrow pages, and what it shows in words.
type drawn struct {
	Wide, Narrow template.HTML
	Says         string
	Legend       []legend
}

// legend is a line of a chart.
type legend struct {
	Name string
	Ink  int // of the style's --ink-0 to --ink-7
}

// requestsChart draws requests and refusals.
func requestsChart(s replay.Series) (*drawn, error) {
	return draw(s, [][]int64{s.Requests, s.Refused}, []legend{{"requests", 0}, {"refused", 1}}, peaks(s))
}

// peaks says how high a series rises.
func peaks(s replay.Series) string {
	if len(s.Requests) == 0 {
		return ""
	}
	says := fmt.Sprintf("At most %s within %s", counted(slices.Max(s.Requests), "request"), span(s.Step))
	if worst := slices.Max(s.Refused); worst > 0 {
		at := s.Begin.Add(time.Duration(slices.Index(s.Refused, worst)) * s.Step)
		says += fmt.Sprintf("; most were refused from %s on, %s", when(at), humanize.Comma(worst))
	}
	return says + "."
}

// rulesChart draws the refusals of the rules that refuse most, in steps of s.
func rulesChart(r *replay.Report, s replay.Series, names []string) (*drawn, error) {
	var lines [][]int64
	var of []legend
	for _, name := range names {
		rule := r.Rules[name]
		if len(of) == chartRules || rule.Refused == 0 {
			break
		}
		lines = append(lines, coarser(replay.Series{Begin: r.Series.Begin, Step: r.Series.Step, Requests: rule.Series}, s.Step).Requests)
		if rule.Shadow {
			name += " (only watches)"
		}
		of = append(of, legend{name, len(of) + 2})
	}
	return draw(s, lines, of, "Refusals over time, by rule.")
}

func draw(over replay.Series, lines [][]int64, of []legend, says string) (d *drawn, err error) {
	if len(over.Requests) < 2 || len(lines) == 0 {
		return nil, nil
	}
	d = &drawn{Says: says, Legend: of}
	if d.Wide, err = drawing(1000, 260, 10, over, lines, of); err != nil {
		return nil, err
	}
	d.Narrow, err = drawing(400, 240, 5, over, lines, of)
	return d, err
}

// drawing draws series as lines, with areas where there are few.
func drawing(width, height, most int, over replay.Series, lines [][]int64, of []legend) (template.HTML, error) {
	var list charts.LineSeriesList
	var inks []charts.Color
	highest := int64(0)
	for i, line := range lines {
		values := make([]float64, len(over.Requests))
		for i := range min(len(line), len(values)) {
			values[i] = float64(line[i])
			highest = max(highest, line[i])
		}
		list, inks = append(list, charts.LineSeries{Values: values}), append(inks, inkLine[of[i].Ink])
	}
	theme := charts.MakeTheme(charts.ThemeOption{
		AxisStrokeColor: inkGrid, AxisSplitLineColor: inkGrid, BackgroundColor: charts.ColorTransparent, TextColor: inkY, TextColorXAxis: inkX, TextColorYAxis: inkY,
		SeriesColors: inks,
	})
	o := charts.NewLineChartOptionWithSeries(list)
	o.Theme, o.Symbol, o.LineStrokeWidth = theme, charts.SymbolNone, 1.75
	o.FillArea, o.FillOpacity = charts.Ptr(of[0].Ink == 0), 51
	o.Legend.Show = charts.Ptr(false)
	o.Padding = charts.NewBox(4, 10, 26, 2)
	ticks := ticks(over, most)
	o.XAxis.Labels, o.XAxis.LabelCount, o.XAxis.BoundaryGap = ticks, len(ticks), charts.Ptr(false)
	o.XAxis.LabelOffset.Left = 1
	o.XAxis.LabelFontStyle.FontSize = 10
	each, grid := scale(highest)
	o.YAxis = []charts.YAxisOption{{
		Min: charts.Ptr(0.0), Max: charts.Ptr(float64(each * grid)), RangeValuePaddingScale: charts.Ptr(0.0), LabelCount: int(grid) + 1,
		ValueFormatter: func(v float64) string { return short(int64(v + 0.5)) },
	}}
	o.YAxis[0].LabelFontStyle.FontSize = 10
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: width, Height: height, Theme: theme})
	if err := p.LineChart(o); err != nil {
		return "", err
	}
	svg, err := p.Bytes()
	// Made of our numbers and of times alone, so that nothing of the log is in it.
	return template.HTML(styled(string(svg), ticks)), err
}

var (
	blank   = regexp.MustCompile(`<text [^>]*></text>|<path [^>]*style="stroke:none;fill:none"/>`)
	tick    = regexp.MustCompile(`<path d="M (\d+) \d+\s+L (\d+) \d+" style="[^"]*rgb\(3,0,0\)[^"]*"/>`)
	onX     = regexp.MustCompile(`(<text [^>]*)(style="stroke:none;fill:rgb\(1,0,0\))`)
	onY     = regexp.MustCompile(`<text x="\d+"( y="\d+" )(style="stroke:none;fill:rgb\(2,0,0\))`)
	gridded = regexp.MustCompile(`<path d="M (\d+) \d+\s+L (\d+) \d+"`)
)

// styled puts a drawing into the colors and the font of the page. It has no size of its own.
func styled(svg string, ticks []string) string {
	svg = blank.ReplaceAllString(svg, "")
	// Fonts differ in their widths from the one that the labels were measured with.
	svg = onX.ReplaceAllString(svg, `${1}text-anchor="middle" $2`)
	if left := gridded.FindStringSubmatch(svg); left != nil {
		x, _ := strconv.Atoi(left[1])
		svg = onY.ReplaceAllString(svg, fmt.Sprintf(`<text x="%d"${1}text-anchor="end" $2`, x-4))
	}
	i := -1
	svg = tick.ReplaceAllStringFunc(svg, func(path string) string {
		x := tick.FindStringSubmatch(path)
		if x[1] != x[2] {
			return path // of the grid
		}
		if i++; i < len(ticks) && ticks[i] == "" {
			return ""
		}
		return path
	})
	return variables.Replace(svg)
}

// scale divides an axis up to at least n into a few equal parts of a round number.
func scale(n int64) (each, parts int64) {
	for each = 1; ; each *= 10 {
		for _, of := range [...]int64{1, 2, 5} {
			if parts = (n + of*each - 1) / (of * each); parts <= 5 {
				return of * each, max(1, parts)
			}
		}
	}
}

// short writes a round number: "20 k".
func short(n int64) string {
	if n < 10_000 {
		return humanize.Comma(n)
	}
	unit, name := 1e3, " k"
	switch {
	case n >= 1e9:
		unit, name = 1e9, " G"
	case n >= 1e6:
		unit, name = 1e6, " M"
	}
	return strconv.FormatFloat(float64(n)/unit, 'f', -1, 64) + name
}

// spans are lengths of steps, and of what lies between two labels of an axis.
var spans = [...]time.Duration{
	time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 7 * day, 28 * day, 364 * day,
}

const day = 24 * time.Hour

// legible is a series of at most so many steps, if there are lengths for that.
func legible(s replay.Series, most int) replay.Series {
	if len(s.Requests) <= most {
		return s
	}
	for _, step := range spans {
		if step > s.Step && step%s.Step == 0 {
			if c := coarser(s, step); len(c.Requests) <= most {
				return c
			}
		}
	}
	return s
}

// coarser adds the steps of a series up to longer ones, a multiple as long.
func coarser(s replay.Series, step time.Duration) replay.Series {
	if step <= s.Step || s.Step <= 0 {
		return s
	}
	ratio := int64(step / s.Step)
	first := s.Begin.Unix() / int64(s.Step/time.Second) // the steps count from the Unix epoch
	sum := func(counts []int64) (sums []int64) {
		for i, n := range counts {
			to := int((first+int64(i))/ratio - first/ratio)
			for len(sums) <= to {
				sums = append(sums, 0)
			}
			sums[to] += n
		}
		return sums
	}
	return replay.Series{
		Begin: time.Unix(first/ratio*int64(step/time.Second), 0).UTC(), Step: step, Requests: sum(s.Requests), Refused: sum(s.Refused),
	}
}

// ticks are labels for the steps at which a new day, hour or the like begins: at most so many, and "" of
// the other steps.
func ticks(s replay.Series, most int) (labels []string) {
	for _, part := range calendar {
		if part.span > 0 && part.span < s.Step {
			continue
		}
		labels = make([]string, len(s.Requests))
		used := 0
		for i := range labels {
			at := s.Begin.Add(time.Duration(i) * s.Step).UTC()
			before := at.Add(-s.Step)
			if i == 0 {
				before = at.Add(-1)
			}
			if part.number(at) != part.number(before) {
				labels[i] = part.label(at)
				used++
			}
		}
		if used <= most {
			break
		}
	}
	return labels
}

// part is a part of time: of a length, or of months.
type part struct {
	span   time.Duration
	months int
}

// calendar are the parts of time that labels are for, from the finest on.
var calendar = func() (parts []part) {
	for _, d := range spans[:slices.Index(spans[:], 7*day)+1] {
		parts = append(parts, part{span: d})
	}
	for _, months := range []int{1, 2, 3, 6, 12, 24, 60, 120, 600, 1200} {
		parts = append(parts, part{months: months})
	}
	return parts
}()

// number counts the parts up to a time.
func (p part) number(t time.Time) int64 {
	if p.months > 0 {
		return int64((t.Year()*12 + int(t.Month()) - 1) / p.months)
	}
	return t.Unix() / int64(p.span/time.Second)
}

// label names the part that begins at a time.
func (p part) label(t time.Time) string {
	switch {
	case p.months >= 12:
		return t.Format("2006")
	case p.months > 0:
		return t.Format("Jan 2006")
	case p.span >= day || t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0:
		return t.Format("2 Jan")
	case p.span >= time.Minute:
		return t.Format("15:04")
	}
	return t.Format("15:04:05")
}
