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
	Delayed           // allowed after a wait in a queue, or by a shadow that would have made the request wait
	Degraded          // allowed without the shared store: by on_error, or by the local allowance
	Deny              // refused, by a limit, a block or on_error
	WouldDeny         // allowed only because the rule is a shadow, or is not enforced for the subject
	Marked            // allowed by a rule with "over: mark" although the request does not fit
	Outcomes  int     = iota
)

var outcomeNames = [Outcomes]string{"allow", "delayed", "degraded", "deny", "would_deny", "marked"}

// String returns allow, delayed, degraded, deny, would_deny or marked.
func (o Outcome) String() string { return outcomeNames[o] }

// Counts are how many decisions had each outcome.
type Counts [Outcomes]uint64

// Total returns the number of all decisions.
func (c *Counts) Total() uint64 { return totalOf(c[:]) }

// Add adds the counts of o.
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

// Window is a time up to now.
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
	Days   []Counts // of each LongStep, the latest last, at most LongSteps of them

	blockedRecent, blockedDays perStep // the refusals by a block in Recent and Days
}

// Steps start at multiples of their length since the Unix epoch, so that the steps of different instances can be
// added.
const (
	Step        = 10 * time.Second
	RecentSteps = 360 // an hour
	LongStep    = 5 * time.Minute
	LongSteps   = 577 // two days and the current step
)

// View has the counts of all instances at one time. It does not change.
type View struct {
	At        time.Time // when it was made
	Since     time.Time // the start of the counts: when the first instance started
	Instances []Instance
	// All counts each request once, whatever the number of rules that count it: as Deny if it was refused, else
	// Marked if a rule marked it, else WouldDeny if a rule would have refused it, else Degraded, else Delayed, else
	// Allow. Each part of a request to policy.Engine.DecideTogether counts as one request.
	All Series
	// Malformed is how many of the refusals of the last hour were of malformed requests.
	Malformed uint64
	watchOnly bool // the whole policy is a shadow
	engine    *policy.Engine
	Rules     []Rule // rules of the policy in force, in the order of its document
	Tiers     []Tier // sorted by name; empty without subjects
	// Upstreams are the upstreams of all gateways, sorted by name.
	Upstreams []Upstream
	Events    []Event // the latest first
}

// Instance is one process.
type Instance struct {
	Name    string
	Self    bool // the instance that made the view
	Started time.Time
	Seen    time.Time // when its last post was read
	Stale   bool      // Seen is too long ago: the latest counts of the instance are missing
	Version string    // of Sluice
	Policy  string    // fingerprint of the policy in force
	// Differs reports that its policy differs from the policy of the instance that made the view. It is not set if
	// one of both has changed its policy in the last 30 seconds, because a change takes a few seconds to reach all
	// instances.
	Differs bool
	Store   Store
	Took    Latency // decisions of the last minute, in all integrations
	// InFlight has the number of requests under way for each upstream of the instance's gateway. It is empty without a
	// gateway.
	InFlight map[string]uint64
}

// Store is the state of an instance's store.
type Store struct {
	Kind   string // "memory" or "redis"
	Shards int    // shards of a shared store
	Away   int    // shards with an open circuit breaker
	Local  uint64 // decisions of the last minute without the shared store
	Keys   uint64 // keys in memory
	// Evicted is how many limited keys were removed for lack of memory, since the start.
	Evicted uint64
	Took    Latency // calls of a shared store in the last minute
}

// Latency has quantiles of a duration, rounded up to the bounds of a histogram: the true values are never larger.
type Latency struct {
	Count    uint64
	P50, P99 time.Duration
}

// Event is a change that may explain a change of the counts.
type Event struct {
	At       time.Time
	Kind     string // "reload", "override", "circuit", "start", …
	Text     string // for people
	Instance string
}

// Rule has the telemetry of one rule.
type Rule struct {
	Name string
	Series
	// Near is how many decisions of each window left less than a fifth of the limit.
	Near [Windows]uint64
	// Refused is the number of subjects that were refused, or would have been, and Asked the number of all
	// subjects. They are exact up to some hundreds, and have a standard error of 2.3 % above. If more than 64 rules
	// have traffic, they may be too small.
	Refused, Asked [Windows]uint64
	// Refusals are the subjects that were refused most, or would have been; Traffic are the subjects with the most
	// requests.
	Refusals, Traffic [Windows]Top
	// Budget has the costs of responses; nil for rules that do not read them from bodies.
	Budget *Budget
	// Load has the automatic limits of requests under way; nil for rules without "in_flight: auto".
	Load *Load
	// Usual is the usual number of refusals a second at this hour: yesterday's, or else the mean of the known time
	// before the last ten minutes, without unusual times and without refusals by a block. It is negative if nothing
	// is known yet.
	Usual float64

	usualShare float64 // usual refusals as a fraction of all requests
}

// Top are the subjects with the largest counts, the largest first.
type Top struct {
	Items []Subject
	// Error is the most by which a Count can be too large. It is also the highest count that a subject not in the
	// list can have.
	Error uint64
	Total uint64 // sum of the counts of all subjects
}

// Subject is one key of a rule, with a count of its own.
type Subject struct {
	// ID identifies the subject in the admin API without revealing its key. In the statistics of tiers, ID and Key
	// are empty if no rule counts by the customer alone.
	ID    string
	Key   string // the key under which the subject is counted: see policy.Engine.SubjectOf
	Sent  string // Key, with names as one of the requests spelled them: see policy.Observation
	Shown string // Sent in the form for people: whole, shortened or hashed, by show_key
	// Count is the number of requests, or of refused requests. The true number is at least Count-Error.
	Count, Error uint64
	// Blocked is a lower bound of how many of the refused requests a block refused.
	Blocked uint64
	// Limit is the limit that applied to the last request, without its burst. If several applied, it is the limit
	// that refused, or else the one with the smallest fraction left. It is zero if it is unknown or counts requests
	// in flight.
	Limit       sluice.Limit
	First, Last time.Time // of the counted requests
	Minutes     int       // number of minutes of the last hour with at least one such request
	// Steps are the counts in each [SubjectStep] of the last hour. Steps start at whole multiples of SubjectStep;
	// the last one is not over yet. Their sum may be too small by Error.
	Steps [SubjectSteps]uint64
}
