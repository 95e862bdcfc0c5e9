package telemetry

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Config has the settings of a [Recorder].
type Config struct {
	// Subjects makes the Recorder keep the subjects with the most denials and requests, and not only counts.
	Subjects bool
	// Instance is the name of this process in Views. If empty, it consists of the host's name and the process ID.
	Instance string
	Version  string // the version of the program, for people
	// Upstreams has the counters of the upstreams of the instance's gateway: at most MaxUpstreams, and one with the
	// name [OtherUpstreams].
	Upstreams []*UpstreamStats
}

// Recorder counts the decisions of an engine.
type Recorder struct {
	config   Config
	engine   *policy.Engine
	id       string // identifies this run of the instance
	started  time.Time
	table    atomic.Pointer[table]
	doors    atomic.Pointer[[]*doorCounters]
	subjects *subjects // nil if not kept

	mu sync.Mutex
	timeline
}

// Watch returns a Recorder of the decisions that an engine makes from now on, except peeks and refunds. Call it before
// the first decision.
func Watch(e *policy.Engine, c Config) *Recorder {
	if c.Instance == "" {
		host, _ := os.Hostname()
		c.Instance = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	c.Instance, c.Version = clip(c.Instance, maxName), clip(c.Version, maxName)
	r := &Recorder{config: c, engine: e, started: time.Now()}
	r.id = c.Instance + "@" + strconv.FormatInt(r.started.UnixNano(), 36)
	if c.Subjects {
		r.subjects = newSubjects()
	}
	r.doors.Store(new([]*doorCounters))
	r.at = r.started.Unix()
	r.all = newSeries(r.at)
	for _, u := range c.Upstreams {
		r.upstreams = append(r.upstreams, &countedUpstream{stats: u, history: newTimed[upstreamStep](r.at)})
	}
	r.follow()
	r.Note("start", strings.TrimSpace("started "+c.Version))
	e.Observe(r.observe)
	e.ObserveSettled(r.observeSettled)
	return r
}

// Totals has the counts of one rule on this instance since its start.
type Totals struct {
	Rule string
	Counts
	Near  uint64 // decisions that left less than a fifth of the limit
	Local uint64 // decisions made without the shared store, including denials
}

// Rules returns the totals of each rule of the policy in force, in the order of its document. Rules after the first
// [MaxRules] are counted together under the name [OtherRules], and limits that callers send (see
// [policy.Engine.Adhoc]) under the name [CallerRule]. These two entries come last, and only if they have counts.
func (r *Recorder) Rules() []Totals {
	t := r.follow()
	all := make([]Totals, 0, len(t.rules))
	for i, c := range t.rules {
		if totals := c.totals(); i < len(t.rules)-2 || totals.Total() > 0 {
			all = append(all, totals)
		}
	}
	return all
}

// MaxRules is how many rules of a policy are counted separately. Further rules are counted together as OtherRules,
// and limits sent by callers as CallerRule.
const (
	MaxRules   = 1000
	OtherRules = "*other" // no rule has these names
	CallerRule = "*caller"
)

// DoorTotals has the counts of one door of this instance since its start.
type DoorTotals struct {
	Door string // see policy.Request
	Counts
	Exempt, Malformed, Repeated uint64 // also contained in Counts
	// Overloaded has the requests that rules with "in_flight: auto" denied. They are also contained in Counts.
	Overloaded ByClass
	Took       Histogram
}

// Doors returns the totals of each door, sorted by name. Doors after the first sixteen are counted together under
// the name [OtherDoors].
func (r *Recorder) Doors() []DoorTotals {
	var all []DoorTotals
	for _, c := range *r.doors.Load() {
		all = append(all, c.totals())
	}
	slices.SortFunc(all, func(a, b DoorTotals) int { return strings.Compare(a.Door, b.Door) })
	return all
}

// Histogram has the number of durations between bounds.
type Histogram struct {
	Bounds []time.Duration // upper bounds of all counts but the last
	Counts []uint64        // one more than Bounds
	Sum    time.Duration
}

// Rule returns the rule with a name, or nil.
func (v *View) Rule(name string) *Rule {
	for i := range v.Rules {
		if v.Rules[i].Name == name {
			return &v.Rules[i]
		}
	}
	return nil
}
