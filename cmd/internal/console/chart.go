package console

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/telemetry"
)

// stacked has the outcomes in the order in which charts stack them, from bottom to top. The bottom one is easiest
// to read, so the most important outcome comes first.
var stacked = [telemetry.Outcomes]struct {
	Outcome    telemetry.Outcome
	Name, Word string
}{
	{telemetry.Deny, "deny", "Denied"},
	{telemetry.Marked, "marked", "Marked"},
	{telemetry.WouldDeny, "would", "Would be denied"},
	{telemetry.Degraded, "degraded", "Without the store"},
	{telemetry.Delayed, "delayed", "Delayed"},
	{telemetry.Allow, "allow", "Allowed"},
}

// chart has the requests per second by outcome over time. Both first.js and the server draw it.
type chart struct {
	From int64   `json:"from"` // the start of the chart in Unix seconds; To is the end
	To   int64   `json:"to"`
	Step int64   `json:"step"` // seconds
	At   []int64 `json:"at"`   // the middle of each step
	// Rates has the requests per second of each outcome, in the order of [stacked].
	Rates [telemetry.Outcomes][]float64 `json:"rates"`
	// Before and BeforeRefused have the requests per second a day earlier: all, and the denied ones. They are null
	// where nothing was counted.
	Before        []*float64 `json:"before"`
	BeforeRefused []*float64 `json:"before_refused"`
	Marks         []mark     `json:"marks"`
	// Chosen is the selected part of the chart in Unix seconds, or zero without a selection.
	Chosen [2]int64 `json:"chosen"`
}

// mark is an event on the chart.
type mark struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// chartOf returns the chart of a series, for the last hour or the last day.
func chartOf(v *telemetry.View, s *telemetry.Series, day bool) *chart {
	of, length := recentSteps(v, s), time.Hour
	if day {
		of, length = longSteps(v, s), 24*time.Hour
	}
	c := &chart{From: v.At.Add(-length).Unix(), To: v.At.Unix(), Step: int64(of.step.Seconds()), Marks: []mark{}, At: []int64{}}
	for i := range c.Rates {
		c.Rates[i] = []float64{}
	}
	for i := range of.counts {
		lasted := of.lasts(i)
		if of.at(i).Unix() < c.From-c.Step || lasted == 0 || i == len(of.counts)-1 && lasted < 2*time.Second {
			continue
		}
		at := of.at(i).Add(of.step / 2)
		if at.After(v.At) {
			at = v.At
		}
		c.At = append(c.At, at.Unix())
		for j, o := range stacked {
			c.Rates[j] = append(c.Rates[j], rounded(perSecond(of.counts[i][o.Outcome], lasted)))
		}
		all, refused := dayBefore(v, s, at)
		c.Before, c.BeforeRefused = append(c.Before, all), append(c.BeforeRefused, refused)
	}
	for _, e := range v.Events {
		if at := e.At.Unix(); at >= c.From && at <= c.To {
			c.Marks = append(c.Marks, mark{at, printable(e.Kind), printable(e.Text)})
		}
	}
	c.Marks = joined(c.Marks, (c.To-c.From)/60)
	return c
}

// joined merges marks that are close together, because the lines of many marks would cover the chart. Marks are
// close if they are fewer seconds apart than the parameter near.
func joined(all []mark, near int64) (out []mark) {
	slices.SortStableFunc(all, func(a, b mark) int { return cmp.Compare(a.At, b.At) })
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n].At-all[i].At < near {
			n++
		}
		m := all[i]
		if n > 1 {
			m = mark{m.At, plural(n, "event", "events"), m.Text + ", …, " + all[i+n-1].Text}
		}
		if n == 2 {
			m.Text = all[i].Text + "; " + all[i+1].Text
		}
		out = append(out, m)
		i += n
	}
	if out == nil {
		out = []mark{}
	}
	return out
}

// dayBefore returns the requests per second a day before a time: all, and the denied ones. It interpolates between
// the middles of the long steps. It returns nil if nothing was counted then.
func dayBefore(v *telemetry.View, s *telemetry.Series, at time.Time) (all, refused *float64) {
	long := longSteps(v, s)
	at = at.Add(-24 * time.Hour)
	i := long.index(at)
	if i < 0 {
		return nil, nil
	}
	beside, part := i+1, float64(at.Sub(long.at(i)))/float64(long.step)-0.5
	if part < 0 {
		beside, part = i-1, -part
	}
	if beside < 0 || beside >= len(long.counts) || long.lasts(beside) < long.step {
		beside = i
	}
	between := func(of func(*telemetry.Counts) uint64) *float64 {
		a, b := perSecond(of(&long.counts[i]), long.lasts(i)), perSecond(of(&long.counts[beside]), long.lasts(beside))
		f := rounded(a + (b-a)*part)
		return &f
	}
	return between((*telemetry.Counts).Total), between(refusedOf)
}

func rounded(f float64) float64 { return math.Round(f*1000) / 1000 }

// drawnWide and drawnHigh are the size of the chart that the server draws. The page stretches the chart.
const drawnWide, drawnHigh = 1000, 240

// area is a filled part of a drawing.
type area struct{ Name, Word, Path string }

// top returns the largest number of requests per second in the chart.
func (c *chart) top() float64 {
	top := 0.0
	for i := range c.At {
		sum := 0.0
		for _, r := range c.Rates {
			sum += r[i]
		}
		top = max(top, sum)
	}
	for _, b := range c.Before {
		if b != nil {
			top = max(top, *b)
		}
	}
	return top
}

// Top returns the upper end of the axis as text.
func (c *chart) Top() string { return rate(niceTop(c.top())) }

func niceTop(top float64) float64 {
	if top <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(top)))
	for _, n := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8, 10} {
		if n*unit >= top {
			return n * unit
		}
	}
	return 10 * unit
}

func (c *chart) x(at int64) float64 { return drawnX(at, c.From, c.To) }

// drawnX returns the X coordinate of a time in a drawing of a period, given its two ends.
func drawnX(at, from, to int64) float64 {
	return drawnWide * float64(at-from) / float64(max(1, to-from))
}

// drawnY returns the Y coordinate of a value in a drawing. The parameter top is the value at the upper edge.
func drawnY(value, top float64) float64 { return drawnHigh * (1 - value/top) }

// layer is a row of values that is drawn on top of the layers before it.
type layer struct {
	name, word string
	values     []float64
}

// stackedAreas draws layers on top of each other. It omits a layer if all of its values are zero.
func stackedAreas(x []float64, top float64, layers []layer) (all []area) {
	below := make([]float64, len(x))
	for _, l := range layers {
		upper, some := make([]float64, len(x)), false
		for i, v := range l.values {
			upper[i] = below[i] + v
			some = some || v > 0
		}
		if some {
			var p outline
			for i := range x {
				p.to(x[i], drawnY(upper[i], top))
			}
			for i := len(x) - 1; i >= 0; i-- {
				p.to(x[i], drawnY(below[i], top))
			}
			all = append(all, area{l.name, l.word, p.String() + "Z"})
		}
		below = upper
	}
	return all
}

// Areas returns the areas of the outcomes that occurred.
func (c *chart) Areas() (all []area) {
	if len(c.At) == 0 {
		return nil
	}
	x := make([]float64, len(c.At))
	for i, at := range c.At {
		x[i] = c.x(at)
	}
	layers := make([]layer, len(stacked))
	for j, o := range stacked {
		layers[j] = layer{o.Name, o.Word, c.Rates[j]}
	}
	return stackedAreas(x, niceTop(c.top()), layers)
}

// Yesterday returns the path of the line for all requests a day before.
func (c *chart) Yesterday() string {
	var p outline
	top := niceTop(c.top())
	for i, b := range c.Before {
		if b != nil {
			p.to(c.x(c.At[i]), drawnY(*b, top))
		}
	}
	return p.String()
}

// maxLines is the maximum number of marks that are drawn as lines. More lines would cover the chart.
const maxLines = 8

// MarkLines returns the X coordinates of the lines that mark events, or nil if there are more than maxLines events.
func (c *chart) MarkLines() (all []string) {
	if len(c.Marks) > maxLines {
		return nil
	}
	for _, m := range c.Marks {
		all = append(all, coordinate(c.x(m.At)))
	}
	return all
}

// Ticks returns the times on the axis.
func (c *chart) Ticks() []time.Time { return ticksOf(c.From, c.To) }

func ticksOf(from, to int64) (all []time.Time) {
	for i := range int64(5) {
		all = append(all, time.Unix(from+(to-from)*i/4, 0).UTC())
	}
	return all
}

// chartRow has the numbers of a part of a chart.
type chartRow struct {
	At    time.Time
	Rates []float64
}

// Rows returns the numbers of the chart in about a dozen rows, for a table below the picture.
func (c *chart) Rows() (all []chartRow) {
	every := max(1, len(c.At)/12)
	for from := 0; from < len(c.At); from += every {
		to := min(from+every, len(c.At))
		row := chartRow{At: time.Unix(c.At[from]-c.Step/2, 0).UTC()}
		for j := range c.Rates {
			sum := 0.0
			for _, r := range c.Rates[j][from:to] {
				sum += r
			}
			row.Rates = append(row.Rates, sum/float64(to-from))
		}
		all = append(all, row)
	}
	return all
}

// outline is an SVG path.
type outline struct{ strings.Builder }

func (p *outline) to(x, y float64) {
	sign := "L"
	if p.Len() == 0 {
		sign = "M"
	}
	p.WriteString(sign + coordinate(x) + " " + coordinate(y))
}

func coordinate(f float64) string { return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) }

// spark is a little chart without axes, 100 by 24.
type spark struct{ Line, Area string }

// sparkOf draws values. A negative value means unknown. A single value is not drawn.
func sparkOf(values []float64) (s spark) {
	top, known := 0.0, 0
	for _, v := range values {
		top = max(top, v)
		if v >= 0 {
			known++
		}
	}
	if known < 2 {
		return s
	}
	var line, fill outline
	for i, v := range values {
		if v < 0 {
			continue
		}
		x, y := 100*float64(i)/float64(len(values)-1), 23.0
		if top > 0 {
			y = 23 - 21*v/top
		}
		if line.Len() == 0 {
			fill.to(x, 24)
		}
		line.to(x, y)
		fill.to(x, y)
	}
	if line.Len() > 0 {
		fill.to(100, 24)
	}
	return spark{line.String(), fill.String()}
}

// minutes returns a rate per second for each of the last 60 minutes of a series, or -1 for a minute in which
// requests were not counted.
func minutes(v *telemetry.View, s *telemetry.Series, of func(*telemetry.Counts) uint64) []float64 {
	const n = 60
	all := make([]float64, n)
	r := recentSteps(v, s)
	for m := range n {
		to := v.At.Add(-time.Duration(n-1-m) * time.Minute)
		c, lasted := r.within(to.Add(-time.Minute), to)
		all[m] = -1
		if lasted > 0 {
			all[m] = perSecond(of(&c), lasted)
		}
	}
	return all
}

func refusedOf(c *telemetry.Counts) uint64 { return c[telemetry.Deny] }
func wouldOf(c *telemetry.Counts) uint64   { return c[telemetry.WouldDeny] }
