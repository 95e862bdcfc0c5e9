package control

import (
	"net/http"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Stats are the counts of all instances.
type Stats struct {
	At        time.Time  `json:"at"`
	Since     time.Time  `json:"since"`
	Headline  Headline   `json:"headline"`
	Instances []Instance `json:"instances"`
	Requests  Requests   `json:"requests"` // counts each request once, even if several rules apply
	// Malformed is the number of requests in the last hour that were denied as malformed.
	Malformed uint64      `json:"malformed"`
	Rules     []RuleStats `json:"rules"`
	Events    []Event     `json:"events"`
	// Upstreams are the upstreams of all gateways.
	Upstreams []UpstreamStats `json:"upstreams"`
}

// Counts are numbers of requests by outcome. A missing outcome is 0.
type Counts map[string]uint64

// Requests has the counts of three windows. Each window ends now, and may be shorter by one step of its series.
type Requests struct {
	Minute Counts `json:"minute"`
	Hour   Counts `json:"hour"`
	Day    Counts `json:"day"`
	// Rate is the requests per second by outcome, over the last 10 to 20 seconds.
	Rate map[string]float64 `json:"rate"`
}

// RuleStats are the counts of one rule.
type RuleStats struct {
	Rule   string   `json:"rule"`
	Limits []string `json:"limits"`
	Shadow bool     `json:"shadow"` // the rule or the whole policy is in shadow mode
	// Enforce is the rollout percentage, such as "10%". It is empty if the rule is enforced for all subjects.
	Enforce  string   `json:"enforce,omitempty"`
	Requests Requests `json:"requests"`
	// Near is the number of requests that left less than a fifth of the limit.
	Near Windows `json:"near"`
	// Refused estimates the number of subjects with requests that were denied, or would have been. Asked estimates
	// the number of all subjects.
	Refused Windows `json:"refused"`
	Asked   Windows `json:"asked"`
	// Usual is the usual number of denials per second at this hour, or null if unknown.
	Usual  *float64 `json:"usual"`
	Series *Series  `json:"series,omitempty"`
	// Load has the automatic limits of a rule with "in_flight: auto". It is nil for other rules.
	Load       *LoadStats  `json:"load,omitempty"`
	LoadSeries *LoadSeries `json:"load_series,omitempty"`
}

// Windows has a number for the last minute, hour and day.
type Windows struct {
	Minute uint64 `json:"minute"`
	Hour   uint64 `json:"hour"`
	Day    uint64 `json:"day"`
}

// Series are counts over time.
type Series struct {
	Recent Steps `json:"recent"`
	Days   Steps `json:"days"`
}

// Steps has counts in steps of one length. The last step is not over yet.
type Steps struct {
	Seconds int                 `json:"seconds"` // the length of a step
	Begin   time.Time           `json:"begin"`   // the start of the first step
	Counts  map[string][]uint64 `json:"counts"`  // by outcome
}

// Headline is the most important fact about the present state.
type Headline struct {
	Level string `json:"level"` // "good", "bad" or "unknown"
	Text  string `json:"text"`
	Rule  string `json:"rule,omitempty"`
	// Upstream is the name of the upstream that the headline is about.
	Upstream string      `json:"upstream,omitempty"`
	Subject  *TopSubject `json:"subject,omitempty"`
	Since    *time.Time  `json:"since,omitempty"`
}

// Instance is one process.
type Instance struct {
	Name    string    `json:"name"`
	Self    bool      `json:"self"` // the instance that answers this request
	Started time.Time `json:"started"`
	Seen    time.Time `json:"seen"`
	Stale   bool      `json:"stale"` // its latest counts have not arrived here
	Version string    `json:"version"`
	Policy  string    `json:"policy"` // a hash of the policy in force
	Store   Store     `json:"store"`
	Took    Latency   `json:"took"`
}

// Store is the state of an instance's store.
type Store struct {
	Kind        string  `json:"kind"`
	Shards      int     `json:"shards"`
	Unavailable int     `json:"away"`
	Local       uint64  `json:"local"`
	Keys        uint64  `json:"keys"`
	Evicted     uint64  `json:"evicted"`
	Took        Latency `json:"took"`
}

// Latency has the number of timed calls, and quantiles of their time in seconds.
type Latency struct {
	Count uint64  `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
}

// Event is a change, such as a reload.
type Event struct {
	At       time.Time `json:"at"`
	Kind     string    `json:"kind"`
	Text     string    `json:"text"`
	Instance string    `json:"instance"`
}

// view returns the present counts if the caller has the role.
func (c *Control) view(who Caller, needs source.Role) (*telemetry.View, error) {
	if err := who.Needs(needs); err != nil {
		return nil, err
	}
	if c.telemetry == nil {
		return nil, Problemf(http.StatusConflict, "telemetry is disabled: start sluice with --telemetry")
	}
	return c.telemetry.View(), nil
}

// statsCache keeps the stats of the latest view.
type statsCache struct {
	mu    sync.Mutex
	of    *telemetry.View
	stats *Stats
}

// Stats returns the counts of all instances. It returns the same value until the view changes.
func (c *Control) Stats(who Caller) (*Stats, error) {
	v, err := c.view(who, source.Viewer)
	if err != nil {
		return nil, err
	}
	c.stats.mu.Lock()
	defer c.stats.mu.Unlock()
	if c.stats.of != v {
		c.stats.of, c.stats.stats = v, c.statsOf(v)
	}
	return c.stats.stats, nil
}

func (c *Control) statsOf(v *telemetry.View) *Stats {
	out := &Stats{
		At: v.At.UTC(), Since: v.Since.UTC(), Headline: headlineOf(v), Requests: requestsOf(v, &v.All), Malformed: v.Malformed,
		Instances: []Instance{}, Rules: []RuleStats{}, Events: []Event{}, Upstreams: upstreamsOf(v),
	}
	for i := range v.Instances {
		out.Instances = append(out.Instances, instanceOf(&v.Instances[i]))
	}
	for i := range v.Rules {
		out.Rules = append(out.Rules, ruleStatsOf(v, &v.Rules[i]))
	}
	written := c.policy.now().document.Rules
	byName := make(map[string]*policy.Rule, len(written))
	for i := range written {
		byName[written[i].Name] = &written[i]
	}
	for i := range out.Rules {
		out.Rules[i].describe(byName[out.Rules[i].Rule], c.engine.Policy().WatchOnly())
	}
	for _, e := range v.Events {
		out.Events = append(out.Events, Event{e.At.UTC(), e.Kind, e.Text, e.Instance})
	}
	return out
}

// RuleStats returns the counts of one rule, with its series.
func (c *Control) RuleStats(who Caller, rule string) (*RuleStats, error) {
	v, err := c.view(who, source.Viewer)
	if err != nil {
		return nil, err
	}
	r := v.Rule(rule)
	if r == nil {
		return nil, Problemf(http.StatusNotFound, "no rule with this name has been counted")
	}
	out := ruleStatsOf(v, r)
	if written := c.ruleOf(r.Name); written != nil {
		out.describe(written, c.engine.Policy().WatchOnly())
	}
	out.Series = &Series{stepsOf(v, r.Recent, telemetry.Step), stepsOf(v, r.Days, telemetry.LongStep)}
	out.LoadSeries = loadSeriesOf(v, r.Load)
	return &out, nil
}

// describe adds the limits and the mode of the rule r. If the rule was removed, r is nil. The parameter watchOnly is
// true if the whole policy is in shadow mode.
func (s *RuleStats) describe(r *policy.Rule, watchOnly bool) {
	s.Limits = []string{}
	if r == nil {
		return
	}
	s.Shadow, s.Enforce = r.Shadow || watchOnly && !r.Exempt, r.Enforce
	if s.Limits = append(s.Limits, r.LimitTexts()...); r.InFlight != (policy.InFlight{}) {
		s.Limits[0] += " in flight"
	}
}

func ruleStatsOf(v *telemetry.View, r *telemetry.Rule) RuleStats {
	out := RuleStats{
		Rule: r.Name, Requests: requestsOf(v, &r.Series),
		Near: windowsOf(r.Near), Refused: windowsOf(r.Refused), Asked: windowsOf(r.Asked), Load: loadOf(r.Load),
	}
	if r.Usual >= 0 {
		out.Usual = &r.Usual
	}
	return out
}

func windowsOf(n [telemetry.Windows]uint64) Windows {
	return Windows{n[telemetry.Minute], n[telemetry.Hour], n[telemetry.Day]}
}

func requestsOf(v *telemetry.View, s *telemetry.Series) Requests {
	return Requests{
		Minute: sum(s.Recent, int(time.Minute/telemetry.Step)), Hour: sum(s.Recent, telemetry.RecentSteps), Day: sum(s.Days, int(24*time.Hour/telemetry.LongStep)),
		Rate: rateOf(v, s.Recent),
	}
}

// sum adds up the last n steps.
func sum(steps []telemetry.Counts, n int) Counts {
	var all telemetry.Counts
	for i := max(0, len(steps)-n); i < len(steps); i++ {
		all.Add(&steps[i])
	}
	out := Counts{}
	for o, n := range all {
		if n > 0 {
			out[telemetry.Outcome(o).String()] = n
		}
	}
	return out
}

// rateOf returns the rate over the last complete step and the present step, or since the start of the first
// instance, if that is shorter.
func rateOf(v *telemetry.View, steps []telemetry.Counts) map[string]float64 {
	begun := v.At.Sub(v.At.Truncate(telemetry.Step))
	seconds := min(telemetry.Step+begun, v.At.Sub(v.Since)).Seconds()
	out := map[string]float64{}
	for name, n := range sum(steps, 2) {
		out[name] = float64(n) / max(seconds, 1)
	}
	return out
}

func stepsOf(v *telemetry.View, steps []telemetry.Counts, length time.Duration) Steps {
	out := Steps{Seconds: int(length.Seconds()), Counts: map[string][]uint64{}}
	out.Begin = beginOf(v, len(steps), length)
	for o := range telemetry.Outcomes {
		all := make([]uint64, len(steps))
		for i := range steps {
			all[i] = steps[i][o]
		}
		out.Counts[telemetry.Outcome(o).String()] = all
	}
	return out
}

// beginOf returns the start of the first of the latest n steps.
func beginOf(v *telemetry.View, n int, length time.Duration) time.Time {
	return v.At.UTC().Truncate(length).Add(-length * time.Duration(max(0, n-1)))
}

func headlineOf(v *telemetry.View) Headline {
	h := v.Headline()
	out := Headline{Level: h.Level, Text: h.Text, Rule: h.Rule, Upstream: h.Upstream, Since: timeOf(h.Since)}
	if h.Subject != nil {
		subject := topSubjectOf(h.Rule, h.Subject)
		out.Subject = &subject
	}
	return out
}

func instanceOf(i *telemetry.Instance) Instance {
	s := &i.Store
	return Instance{
		Name: i.Name, Self: i.Self, Started: i.Started.UTC(), Seen: i.Seen.UTC(), Stale: i.Stale, Version: i.Version, Policy: i.Policy,
		Store: Store{s.Kind, s.Shards, s.Unavailable, s.Local, s.Keys, s.Evicted, latencyOf(s.Took)}, Took: latencyOf(i.Took),
	}
}

func latencyOf(l telemetry.Latency) Latency {
	return Latency{l.Count, l.P50.Seconds(), l.P99.Seconds()}
}
