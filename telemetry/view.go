package telemetry

import (
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// Outcome is the result of a rule for a request.
type Outcome uint8

const (
	Allow     Outcome = iota
	Delayed           // allowed after a wait in a queue; for a rule in shadow mode, the request would have waited
	Degraded          // allowed without the shared store, by on_error or by the local allowance of the limit
	Deny              // denied by a limit, a block or on_error
	WouldDeny         // allowed only because the rule is in shadow mode, or is not enforced for the subject
	Marked            // allowed by a rule with "over: mark", although the request does not fit
	Outcomes  int     = iota
)

var outcomeNames = [Outcomes]string{"allow", "delayed", "degraded", "deny", "would_deny", "marked"}

// String returns allow, delayed, degraded, deny, would_deny or marked.
func (o Outcome) String() string { return outcomeNames[o] }

// Counts has the number of decisions with each [Outcome].
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

// Window is a length of time up to the present.
type Window uint8

const (
	Minute Window = iota
	Hour
	Day
	Windows int = iota
)

// String returns minute, hour or day.
func (w Window) String() string { return [Windows]string{"minute", "hour", "day"}[w] }

// Series has Counts over time. The last element of each list is still being counted.
type Series struct {
	Recent []Counts // one for each Step, the latest last, at most RecentSteps
	Days   []Counts // one for each LongStep, the latest last, at most LongSteps

	blockedRecent, blockedDays perStep // the denials by a block in Recent and Days
}

// Steps begin at multiples of their length since the Unix epoch, so that the steps of several instances can be
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
	Since     time.Time // start of the counts: when the first of the instances started, at most two days ago
	Instances []Instance
	// Each request is counted once in All, however many rules applied to it, under the first of these outcomes that
	// applies: Deny if the request was denied, Marked if a rule marked it, WouldDeny if a rule would have denied it,
	// then Degraded, Delayed and Allow. Each part of a call of policy.Engine.DecideTogether counts as one request.
	All Series
	// Malformed is the number of requests denied as malformed in the last hour.
	Malformed uint64
	watchOnly bool // the whole policy is in shadow mode
	engine    *policy.Engine
	// Rules has the rules of the policy in force, in the order of its document, and then [OtherRules] and [CallerRule]
	// if they have counts.
	Rules []Rule
	Tiers []Tier // sorted by name; empty without subjects
	// Upstreams has the upstreams of all gateways, sorted by name.
	Upstreams []Upstream
	Events    []Event // the latest first
}

// Instance is one process.
type Instance struct {
	Name    string
	Self    bool // the instance that made the View
	Started time.Time
	Seen    time.Time // time of its last post
	Stale   bool      // Seen is too long ago: later counts of the instance are missing
	Version string    // version of Sluice
	Policy  string    // identifies its policy in force
	// Differs reports that its policy differs from that of the instance that made the view, and that neither has
	// changed its policy in the last 30 seconds: a change takes a few seconds to reach all instances.
	Differs bool
	Store   Store
	Took    Latency // time for decisions in the last minute, through all doors
	// InFlight has the number of requests in flight for each upstream of the instance's gateway. It is empty
	// without a gateway.
	InFlight map[string]uint64
}

// Store is the state of an instance's store.
type Store struct {
	Kind        string // "memory" or "redis"
	Shards      int    // of a shared store
	Unavailable int    // number of shards with an open circuit breaker
	Local       uint64 // decisions of the last minute made without the shared store
	Keys        uint64 // number of keys in memory
	// Evicted is the number of keys that, since the start, were evicted from full memory although they had used more
	// than half of their limit.
	Evicted uint64
	Took    Latency // time of the calls to a shared store in the last minute
}

// Latency has quantiles of durations. They are rounded up to the bounds of a histogram. Quantiles above the last bound
// are reported as that bound.
type Latency struct {
	Count    uint64
	P50, P99 time.Duration
}

// Event is a change that may explain a change of the numbers.
type Event struct {
	At       time.Time
	Kind     string // such as "reload", "override", "circuit" or "start"
	Text     string // for people
	Instance string
}

// Rule has the counts of one rule.
type Rule struct {
	Name string
	Series
	// Near is the number of decisions, in each window, that left less than a fifth of the limit.
	Near [Windows]uint64
	// Refused is the number of subjects with denials, including subjects that would be denied if the rule were not in
	// shadow mode. Asked is the number of subjects with requests. Both are exact up to some hundreds. Larger numbers
	// have a standard error of 2.3 %. If several rules have hundreds of subjects on several instances, the number of
	// subjects of a rule may be too small, but never less than the largest number that one instance has counted.
	Refused, Asked [Windows]uint64
	// Refusals has the subjects with the most denials, counted as for Refused. Traffic has the subjects with the
	// most requests.
	Refusals, Traffic [Windows]Top
	// Budget has the costs of responses. It is nil for rules that do not read costs from bodies.
	Budget *Budget
	// Load has the rule's automatic limits. It is nil for rules without "in_flight: auto".
	Load *Load
	// Usual is the usual number of denials a second at this hour: yesterday's number or, if that is unknown, the
	// mean of all times before the last ten minutes. Unusual times and denials by a block are left out. Usual is
	// negative until enough is known.
	Usual float64

	usualShare float64 // usual denials as a fraction of all requests
}

// Top has the subjects with the largest counts, the largest first.
type Top struct {
	Items []Subject
	// Error is the largest number by which a Count can be too large. It is also the largest count that a subject
	// outside Items can have.
	Error uint64
	Total uint64 // sum of the counts of all subjects
}

// Subject is one key under which a rule counts, such as the address of a client or the name of a customer, with its
// counts.
type Subject struct {
	// ID identifies the subject in the admin API without its key. ID and Key are empty for a customer in a [Tier]
	// if no rule counts by the customer alone.
	ID    string
	Key   string // the key under which it counts: see policy.Engine.SubjectOf
	Sent  string // Key in the spelling of one of the requests: see policy.Observation
	Shown string // the value of Sent in a form for people: whole, shortened or hashed, as the rule's show_key requires
	// Count is the number of requests or, in lists of denials, of denied requests. The true number is between
	// Count-Error and Count.
	Count, Error uint64
	// Blocked is the number of denials by a block. The true number may be larger.
	Blocked uint64
	// Limit is the limit that applied to the last request, without its burst. If there were several, it is the one
	// that denied, or else the one with the least left. It is zero for requests in flight, or if it is unknown.
	Limit       sluice.Limit
	First, Last time.Time // times of the first and the last counted request
	Minutes     int       // number of minutes of the last hour with a counted request
	// Steps has the counts of each [SubjectStep] of the last hour. Steps begin at multiples of SubjectStep; the
	// last is the current one. Their sum may be too small by Error.
	Steps [SubjectSteps]uint64
}
