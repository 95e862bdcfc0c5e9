package telemetry

import (
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Outcome is the outcome of a rule for a request.
type Outcome uint8

const (
	Allow     Outcome = iota
	Delayed           // allowed after a wait in a queue, or a shadow that would have made the request wait
	Degraded          // let pass without the shared store: by on_error, or by the local share of the limit
	Deny              // refused, by a limit, a block or on_error
	WouldDeny         // let pass by a shadow, or by a rule that is not enforced for the subject, and refused otherwise
	Marked            // let pass by a rule with "over: mark" although it does not fit
	Outcomes  int     = iota
)

var outcomeNames = [Outcomes]string{"allow", "delayed", "degraded", "deny", "would_deny", "marked"}

// String returns allow, delayed, degraded, deny, would_deny or marked.
func (o Outcome) String() string { return outcomeNames[o] }

// Counts are how many decisions had each outcome.
type Counts [Outcomes]uint64

// Total returns how many there were.
func (c *Counts) Total() uint64 { return totalOf(c[:]) }

// Add adds those of o.
func (c *Counts) Add(o *Counts) { addTo(c[:], o[:]) }

func totalOf(counts []uint64) (n uint64) {
	for _, v := range counts {
		n += v
	}
	return n
}

func addTo(sum, counts []uint64) {
	for i, v := range counts {
		sum[i] += v
	}
}

// Window is how far back something looks.
type Window uint8

const (
	Minute Window = iota
	Hour
	Day
	Windows int = iota
)

// String returns minute, hour or day.
func (w Window) String() string { return [Windows]string{"minute", "hour", "day"}[w] }

// A Series is Counts over time. The last entry of each list is still being counted.
type Series struct {
	Recent []Counts // of each Step, the latest last, at most RecentSteps of them
	Days   []Counts // of each LongStep, likewise, at most LongSteps

	blockedRecent, blockedDays perStep // of these, the refusals by a block
}

// Steps begin at multiples of their length since the Unix epoch, so that instances' add up.
const (
	Step        = 10 * time.Second
	RecentSteps = 360 // an hour
	LongStep    = 5 * time.Minute
	LongSteps   = 577 // two days, and the step that has begun
)

// View is what all instances have seen. It does not change once it is made.
type View struct {
	At        time.Time // when it was made
	Since     time.Time // since when there are counts: when the first of the instances started
	Instances []Instance
	// All has each request once, whatever the number of rules that it met: Deny if it was
	// refused, else Marked if a rule marked it, else WouldDeny if a rule would have refused it, else Degraded, else Delayed, else
	// Allow. Of policy.Engine.DecideTogether each part is one.
	All Series
	// Malformed is how many of the refusals of the last hour were for what a request lacked.
	Malformed uint64
	watchOnly bool // the whole policy is a shadow
	engine    *policy.Engine
	Rules     []Rule // of the policy in force, in the order of its document
	Tiers     []Tier // sorted by name; empty without subjects
	// Upstreams are the upstreams of all gateways, sorted by name.
	Upstreams []Upstream
	Events    []Event // the latest first
}

// Instance is one process.
type Instance struct {
	Name    string
	Self    bool // the one that made the view
	Started time.Time
	Seen    time.Time // when it last told anything
	Stale   bool      // that is too long ago: what it counts is missing here
	Version string    // of Sluice
	Policy  string    // tells policies in force apart
	// Differs reports that its policy differs from that of the instance that made the view, and that neither has
	// changed its policy in the last 30 seconds: a change takes a few seconds to reach all instances.
	Differs bool
	Store   Store
	Took    Latency // decisions of the last minute, through all doors
	// InFlight has the number of requests under way for each upstream of the instance's gateway. It is empty without a
	// gateway.
	InFlight map[string]uint64
}

// Store is how the store of an instance is doing.
type Store struct {
	Kind   string // "memory" or "redis"
	Shards int    // of a shared store
	Away   int    // shards with an open circuit breaker
	Local  uint64 // decisions of the last minute that were made without it
	Keys   uint64 // held in memory
	// Evicted is how many limited keys were forgotten for lack of memory, since the start.
	Evicted uint64
	Took    Latency // calls of a shared store in the last minute
}

// Latency is how long something took, in the bounds of a histogram: the true quantiles are not
// larger.
type Latency struct {
	Count    uint64
	P50, P99 time.Duration
}

// Event is something that changed, and may be why the numbers did.
type Event struct {
	At       time.Time
	Kind     string // "reload", "override", "circuit", "start", …
	Text     string // for people
	Instance string
}

// Rule is what telemetry keeps of one rule.
type Rule struct {
	Name string
	Series
	// Near is how many decisions of each window left less than a fifth of the limit.
	Near [Windows]uint64
	// Refused and Asked are how many subjects were refused, or would have been, and how many
	// there were: exactly up to some hundreds, and beyond that with a standard error of 2.3 %. If more than
	// 64 rules have traffic, they may be too small.
	Refused, Asked [Windows]uint64
	// Refusals are the subjects that were refused most, or would have been; Traffic are those
	// that asked most.
	Refusals, Traffic [Windows]Top
	// Budget has the costs of responses; nil for rules that do not read them from bodies.
	Budget *Budget
	// Load has the automatic limits of requests under way; nil for rules without "in_flight: auto".
	Load *Load
	// Usual is how many refusals a second are usual at this hour: yesterday's, or else the mean of
	// what there is before the last ten minutes, without time that was itself unusual, and without
	// what a block refused. Negative: nothing is known yet.
	Usual float64

	usualShare float64 // of all requests
}

// Top are the subjects with the largest counts, the largest first.
type Top struct {
	Items []Subject
	// Error is the most by which a Count can be too large, and the most that a subject can have
	// that is missing.
	Error uint64
	Total uint64 // of all subjects
}

// Subject is one of those that a rule tells apart.
type Subject struct {
	// ID names the subject to the admin API without saying its key. It is empty for the customer of a tier that no
	// rule counts alone, as is Key.
	ID    string
	Key   string // as it is counted under: see policy.Engine.SubjectOf
	Sent  string // Key with names as one of the requests spelled them: see policy.Observation
	Shown string // Sent as people see it: whole, shortened or hashed, by show_key
	// Count is how many requests there were, or how many of them were refused. At least
	// Count-Error is true.
	Count, Error uint64
	// Blocked is how many of the refused ones a block refused, at least.
	Blocked uint64
	// Limit is the one that held for the last request, without its burst: of several, the one that refused, or of
	// which the least was left. It is zero where it is unknown, or of requests in flight.
	Limit       sluice.Limit
	First, Last time.Time // of those that are counted
	Minutes     int       // of the last hour in which there was one
	// Steps are its counts in each [SubjectStep] of the last hour, which begin at whole multiples of it; the last
	// is under way. Together they may be too small by Error.
	Steps [SubjectSteps]uint64
}
