package telemetry

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Refusals keeps the latest refusals of an engine, so that they can be found by the ID of their request: see
// [KeepRefusals].
type Refusals struct {
	subjects, networks refusalSampler

	mu      sync.Mutex // guards the fields below
	pace    allowance
	perRule perRule    // n is the number of kept refusals
	kept    []*Refusal // the oldest first
	ever    uint64     // how many refusals have ever been kept
}

// The bounds that KeepRefusals promises.
const (
	maxKept                    = 4096
	keptFirst                  = 32         // refusals of a subject that are all kept
	keptOfNetwork              = 256        // the same for all subjects at one address
	keptOfRuleRate, keptOfRule = 100, 1_000 // refusals of a rule, per second and at once
	keptRate, keptBurst        = 1_000, 4_000
)

// Refusal is a kept refusal. Texts from the request are made printable and cut. An empty text is unknown.
type Refusal struct {
	At time.Time
	// Shadow reports that the rule would have denied the request, but the request was allowed.
	Shadow bool
	Marked bool // the request passed with a mark: see [policy.Result.Over]; Shadow is also set
	// Rule is empty for a request that lacked something: see Missing.
	Rule, Limit, LimitName, From string
	Because                      string // see policy.Result; "overload": see policy.Load
	Class                        string // the class of the request, if it was denied because of an overload
	Missing                      string
	// Subject is the subject's key in the form that its rule shows, and SubjectID is its ID: see [Subject].
	Subject, SubjectID string
	Wait               int64  // seconds; negative: waiting does not help
	Address            string // empty if it is part of a subject that is not shown whole
	Door, Method, Host string
	Path               string // without the query
	RequestID, TraceID string
	Brought            string // the X-Request-Id of the request, if that could not be sent back
	Instance           string // the instance that has refused; see [Fleet.FindRefusals]

	of *ruleAllowance
}

// KeepRefusals keeps the last 4096 refusals, each under an ID: the request's X-Request-Id or traceparent, else the
// ID from the integration, else a new one (see [policy.Engine.NameRefusals]). A request that a shadow would have
// refused is kept only if it has an ID of its own. Call KeepRefusals before the first decision. It keeps the first
// 32 refusals within an hour of each subject of a rule, and the first 256 of each public address (or IPv6 /64),
// then fewer and fewer, so that no client displaces all others. It keeps at most 100 refusals a second of a rule on
// average. New refusals replace the oldest of the rule with the most, so an attack on one rule does not push out
// the refusals of others. All refusals take at most some 4 MiB.
func KeepRefusals(e *policy.Engine) *Refusals {
	k := &Refusals{
		subjects: newRefusalSampler(keptFirst), networks: newRefusalSampler(keptOfNetwork),
		pace: allowance{rate: keptRate, burst: keptBurst}, perRule: perRule{rate: keptOfRuleRate, burst: keptOfRule},
	}
	e.NameRefusals()
	e.Observe(k.observe)
	return k
}

func (k *Refusals) observe(_ context.Context, o *policy.Observation) {
	eachRefusal(o, func(i int) {
		if requestID(o) == "" && traceID(o.Request.Header["Traceparent"]) == "" {
			return
		}
		now := time.Now()
		hash, rule := k.subjects.hashOf(o, i)
		if _, due, _ := k.subjects.sample(hash, rule, now); due && k.dueOfNetwork(o.Client(), now) && k.may(rule, now) {
			r := describeRefusal(o, i, now)
			if id := printable.Text(broughtID(o.Request), 64); id != r.RequestID {
				r.Brought = id
			}
			if r.Subject != "" && i < len(o.Decision.Results) {
				r.SubjectID = SubjectID(o.Key(i))
			}
			k.keep(rule, r)
		}
	})
}

// dueOfNetwork counts a refusal of an address, and reports whether to keep it. The subject does not matter, because
// the client may have invented it. A private address is not counted, because it may be an untrusted proxy and stand
// for all clients.
func (k *Refusals) dueOfNetwork(client netip.Addr, now time.Time) bool {
	if !client.IsValid() || client.IsPrivate() || client.IsLoopback() || client.IsLinkLocalUnicast() {
		return true
	}
	if client.Is6() {
		client = netip.PrefixFrom(client.WithZone(""), 64).Masked().Addr()
	}
	_, due, _ := k.networks.sample(k.networks.hash("", "", client), "", now)
	return due
}

// may reports whether the bound of a rule permits another refusal now.
func (k *Refusals) may(rule string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.perRule.of(rule)
	if !r.has(now) || !k.pace.has(now) {
		return false
	}
	r.tokens--
	k.pace.tokens--
	return true
}

func (k *Refusals) keep(rule string, r Refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.of = k.perRule.of(rule)
	if len(k.kept) >= maxKept {
		k.pushOut()
	}
	r.of.n++
	k.ever++
	k.kept = append(k.kept, &r)
}

// pushOut removes the oldest refusal of the rule with the most kept refusals. The lock is held.
func (k *Refusals) pushOut() {
	most := k.kept[0].of
	for _, r := range k.perRule.rules {
		if r.n > most.n {
			most = r
		}
	}
	most.n--
	i := slices.IndexFunc(k.kept, func(r *Refusal) bool { return r.of == most })
	k.kept = slices.Delete(k.kept, i, i+1)
}

// Find returns the kept refusals of a request, by its ID or its trace's, latest first. Several rules may have
// refused the request, and IDs need not be unique.
func (k *Refusals) Find(id string) (all []Refusal) {
	if id = printable.Text(id, 64); id == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range slices.Backward(k.kept) {
		if r.isOf(id) {
			all = append(all, *r)
		}
	}
	return all
}

// isOf reports whether id is the ID of the request or of its trace.
func (r *Refusal) isOf(id string) bool {
	return id != "" && (r.RequestID == id || r.TraceID == id || r.Brought == id)
}

// Kept returns how many refusals are kept, and the time of the oldest; it is zero if none is kept.
func (k *Refusals) Kept() (n int, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) == 0 {
		return 0, since
	}
	return len(k.kept), k.kept[0].At
}
