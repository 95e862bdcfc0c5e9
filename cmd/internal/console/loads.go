package console

import (
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// loadRow is a rule with an automatic limit of requests in flight.
type loadRow struct {
	Name            string
	State           ruleState
	Limits          uint64 // the number of limits: one for each value of the key, on each instance
	Limit, InFlight uint64
	Base, Latency   time.Duration
	Slowdown        float64       // 0: unknown
	Classes         []classOfLoad // the classes of denied requests, the most important first
	Shed            string        // the names of Classes
	Would           bool          // the requests of Classes were allowed, because the rule is in shadow mode
	Since           time.Time     // the start of the overload

	LimitSpark, LoadSpark, LatencySpark spark
}

// classOfLoad is a class of requests, with the number of those denied in the last minute.
type classOfLoad struct {
	Name   string
	Denied uint64
}

// loadRowOf returns the row of a rule, or nil if the rule has no automatic limit.
func loadRowOf(r *telemetry.Rule, written *policy.Rule) *loadRow {
	l := r.Load
	if l == nil {
		return nil
	}
	row := &loadRow{
		Name: r.Name, Limits: l.Limits, Limit: l.Limit, InFlight: l.InFlight, Base: l.Base, Latency: l.Latency, Slowdown: l.Slowdown(), Since: l.Overloaded,
		LimitSpark: loadSpark(l, func(s *telemetry.LoadStep) float64 { return float64(s.Limit) }),
		LoadSpark:  loadSpark(l, func(s *telemetry.LoadStep) float64 { return float64(s.InFlight) }),
		LatencySpark: loadSpark(l, func(s *telemetry.LoadStep) float64 {
			if s.Latency == 0 {
				return -1
			}
			return s.Latency.Seconds()
		}),
	}
	if row.State = (ruleState{Gone: true}); written != nil {
		row.State = stateOf(written)
	}
	by, would := l.Sheds()
	row.Would = would
	var shed []string
	for class := telemetry.Classes - 1; class >= 0; class-- {
		if name := policy.ClassNames()[class]; by[class] > 0 {
			row.Classes, shed = append(row.Classes, classOfLoad{name, by[class]}), append(shed, name)
		}
	}
	row.Shed = strings.Join(shed, ", ")
	return row
}

// loadRows returns the rules with automatic limits, in the order of the policy.
func loadRows(v *telemetry.View, rules map[string]*policy.Rule) (all []loadRow) {
	for i := range v.Rules {
		if row := loadRowOf(&v.Rules[i], rules[v.Rules[i].Name]); row != nil && len(all) < maxRows {
			all = append(all, *row)
		}
	}
	return all
}

// loadSpark draws the maximum of each minute of the last hour.
func loadSpark(l *telemetry.Load, of func(*telemetry.LoadStep) float64) spark {
	var all []float64
	for minute := range inMinutes(l.Recent) {
		most := -1.0
		for i := range minute {
			most = max(most, of(&minute[i]))
		}
		all = append(all, most)
	}
	return sparkOf(all)
}

// loadChart is a chart of the limit and the load of a rule, and of the denied requests by class, over time.
type loadChart struct {
	Limit, Load string // SVG paths
	Top         string // the upper end of the axis of Limit and Load
	Refused     []area // denied requests by class, the most important class at the bottom
	RefusedTop  string // the upper end of the axis of Refused, in requests per second
	Ticks       []time.Time
	Rows        []loadNumbers

	from, to int64 // Unix seconds
}

// loadNumbers has the numbers of a part of a chart.
type loadNumbers struct {
	At              time.Time
	Limit, InFlight uint64
	Base, Latency   time.Duration
	Refused         [telemetry.Classes]float64 // requests per second by class, the most important class first
}

// loadPoint has the values of one step of a chart.
type loadPoint struct {
	at      int64 // the middle of the step, in Unix seconds
	step    *telemetry.LoadStep
	refused [telemetry.Classes]float64 // requests per second by class, the most important class first
}

// loadChartOf draws the last day if the parameter day is true, otherwise the last hour. It returns nil without
// data. If the parameter would is true, it draws the requests that a rule in shadow mode would have denied.
func loadChartOf(v *telemetry.View, l *telemetry.Load, day, would bool) *loadChart {
	list, step, length := l.Recent, telemetry.Step, time.Hour
	if day {
		list, step, length = l.Days, telemetry.LongStep, 24*time.Hour
	}
	c := &loadChart{from: v.At.Add(-length).Unix(), to: v.At.Unix()}
	of := newSteps(v, len(list), step)
	var points []loadPoint
	for i := range list {
		s, lasted := &list[i], of.lasts(i)
		if at := of.at(i).Add(step / 2); of.at(i).Unix() >= c.from && s.Limit > 0 && lasted > 0 {
			points = append(points, loadPoint{min(at.Unix(), c.to), s, refusedByClass(s, would, lasted)})
		}
	}
	if len(points) == 0 {
		return nil
	}
	c.Ticks = ticksOf(c.from, c.to)
	c.lines(points)
	c.areas(points)
	for i := 0; i < len(points); i += max(1, len(points)/12) {
		p := &points[i]
		c.Rows = append(c.Rows, loadNumbers{time.Unix(p.at, 0).UTC(), p.step.Limit, p.step.InFlight, p.step.Base, p.step.Latency, p.refused})
	}
	return c
}

// refusedByClass returns the denied requests per second by class, the most important class first. If the parameter
// would is true, it returns the requests that would have been denied.
func refusedByClass(s *telemetry.LoadStep, would bool, lasted time.Duration) (all [telemetry.Classes]float64) {
	by := &s.Denied
	if would {
		by = &s.Watched
	}
	for class, n := range by {
		all[telemetry.Classes-1-class] = perSecond(n, lasted)
	}
	return all
}

func (c *loadChart) x(at int64) float64 { return drawnX(at, c.from, c.to) }

func (c *loadChart) lines(points []loadPoint) {
	most := 0.0
	for _, p := range points {
		most = max(most, float64(p.step.Limit), float64(p.step.InFlight))
	}
	top := niceTop(most)
	var limit, load outline
	for _, p := range points {
		limit.to(c.x(p.at), drawnY(float64(p.step.Limit), top))
		load.to(c.x(p.at), drawnY(float64(p.step.InFlight), top))
	}
	c.Limit, c.Load, c.Top = limit.String(), load.String(), rate(top)
}

func (c *loadChart) areas(points []loadPoint) {
	x, layers := make([]float64, len(points)), make([]layer, telemetry.Classes)
	for k := range layers {
		name := policy.ClassNames()[telemetry.Classes-1-k]
		layers[k] = layer{name, name, make([]float64, len(points))}
	}
	most := 0.0
	for i, p := range points {
		x[i] = c.x(p.at)
		sum := 0.0
		for k, r := range p.refused {
			layers[k].values[i] = r
			sum += r
		}
		most = max(most, sum)
	}
	top := niceTop(most)
	c.RefusedTop, c.Refused = rate(top), stackedAreas(x, top, layers)
}
