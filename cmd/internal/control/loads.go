package control

import (
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// LoadStats sums up the automatic limits of one rule. The rule has one limit for each value of its key, on each
// instance.
type LoadStats struct {
	Limits   uint64 `json:"limits"` // number of limits
	Limit    uint64 `json:"limit"`  // sum of the limits for the class normal
	InFlight uint64 `json:"in_flight"`
	// Base is the latency of the upstream without a queue, and Latency the present latency, in seconds; null:
	// unknown. Both are those of the limit with the largest ratio of latency to base.
	Base    *float64 `json:"base"`
	Latency *float64 `json:"latency"`
	// Overloaded is when the present overload started; null: no request exceeded a limit in the last minute.
	Overloaded *time.Time `json:"overloaded"`
	// Denied and WouldDeny are requests of the last minute by class. A missing class is 0.
	Denied    map[string]uint64 `json:"denied"`
	WouldDeny map[string]uint64 `json:"would_deny"`
}

func loadOf(l *telemetry.Load) *LoadStats {
	if l == nil {
		return nil
	}
	denied, watched := l.LastMinute()
	return &LoadStats{
		Limits: l.Limits, Limit: l.Limit, InFlight: l.InFlight, Base: seconds(l.Base), Latency: seconds(l.Latency),
		Overloaded: timeOf(l.Overloaded), Denied: byClass(&denied), WouldDeny: byClass(&watched),
	}
}

// seconds returns a time in seconds, or nil if it is 0.
func seconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := d.Seconds()
	return &s
}

func byClass(n *telemetry.ByClass) map[string]uint64 {
	out := map[string]uint64{}
	for class, name := range policy.ClassNames() {
		if n[class] > 0 {
			out[name] = n[class]
		}
	}
	return out
}

// LoadSeries has the automatic limits of one rule over time.
type LoadSeries struct {
	Recent LoadSteps `json:"recent"`
	Days   LoadSteps `json:"days"`
}

// LoadSteps has figures for successive steps of the same length. The last step is not over.
type LoadSteps struct {
	Seconds  int       `json:"seconds"` // the length of a step
	Begin    time.Time `json:"begin"`   // start of the first step
	Limit    []uint64  `json:"limit"`
	InFlight []uint64  `json:"in_flight"` // sampled every second; the largest sample of the step
	Base     []float64 `json:"base"`      // in seconds; 0: unknown
	Latency  []float64 `json:"latency"`
	// Denied and WouldDeny are requests by class.
	Denied    map[string][]uint64 `json:"denied"`
	WouldDeny map[string][]uint64 `json:"would_deny"`
}

func loadSeriesOf(v *telemetry.View, l *telemetry.Load) *LoadSeries {
	if l == nil {
		return nil
	}
	return &LoadSeries{loadStepsOf(v, l.Recent, telemetry.Step), loadStepsOf(v, l.Days, telemetry.LongStep)}
}

func loadStepsOf(v *telemetry.View, steps []telemetry.LoadStep, length time.Duration) LoadSteps {
	out := LoadSteps{
		Seconds: int(length.Seconds()), Begin: beginOf(v, len(steps), length),
		Limit: []uint64{}, InFlight: []uint64{}, Base: []float64{}, Latency: []float64{}, Denied: map[string][]uint64{}, WouldDeny: map[string][]uint64{},
	}
	for i := range steps {
		s := &steps[i]
		out.Limit, out.InFlight = append(out.Limit, s.Limit), append(out.InFlight, s.InFlight)
		out.Base, out.Latency = append(out.Base, s.Base.Seconds()), append(out.Latency, s.Latency.Seconds())
		for class, name := range policy.ClassNames() {
			out.Denied[name] = append(out.Denied[name], s.Denied[class])
			out.WouldDeny[name] = append(out.WouldDeny[name], s.Watched[class])
		}
	}
	return out
}
