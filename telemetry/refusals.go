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

// Refusals has the latest denials of an engine, and finds them by the ID of the request: see [KeepRefusals].
type Refusals struct {
	subjects, networks refusalSampler

	mu      sync.Mutex // guards the fields below
	pace    allowance
	perRule perRule    // n is the number of kept denials
	kept    []*Refusal // the oldest first
	ever    uint64     // how many denials have ever been kept
}

// These are the bounds that KeepRefusals promises.
const (
	maxKept                    = 4096
	keptFirst                  = 32         // the first denials of a subject, which are all kept
	keptOfNetwork              = 256        // the same for all subjects at one address
	keptOfRuleRate, keptOfRule = 100, 1_000 // denials of a rule, per second and at once
	keptRate, keptBurst        = 1_000, 4_000
)

// Refusal describes a denied request. Texts from the request are printable, and may be cut. An empty text is unknown.
type Refusal struct {
	At time.Time
	// Shadow reports that the rule would have denied the request, but the request was allowed.
	Shadow bool
	Marked bool // the request was allowed with a mark: see [policy.Result.Over]. Shadow is true as well
	// Rule is empty for a malformed request.
	Rule, Limit, LimitName, From string
	Because                      string // see policy.Result.Because and policy.Load.Because
	Class                        string // class of the request, if it was denied because of an overload
	Missing                      string // why a request is malformed: see policy.Decision
	// Subject is the subject in the form that the rule's show_key allows, and SubjectID is its ID: see [Subject].
	Subject, SubjectID string
	Wait               int64  // in seconds; negative if waiting does not help
	Address            string // empty if it is part of a subject that is not shown whole
	Door, Method, Host string
	Path               string // without the query
	RequestID, TraceID string
	// Brought is the ID that the request came with, if that is not printable ASCII of at most 128 bytes. RequestID is
	// then a new ID.
	Brought  string
	Instance string // the instance that denied the request; see [Fleet.FindRefusals]

	of *ruleAllowance
}

// KeepRefusals keeps the latest 4096 denials of e, in at most some 4 MiB. Call it before the first decision.
//
// A denial is kept under the ID of its request: the ID in its X-Request-Id or traceparent, the ID from its door, or
// else a new one (see [policy.Engine.NameRefusals]). A request that only a rule in shadow mode would have denied gets
// no new ID, so it is kept only if it came with an ID.
//
// No single client or rule can displace all other denials. For each subject of a rule, the first 32 denials
// are kept, and then fewer and fewer, until an hour passes without a denial. For each public address (or IPv6 /64),
// the first 256 are kept, and then fewer and fewer, in the same way. On average, at most 100 denials a second are kept
// for each rule, and 1,000 for all rules together. When 4096 denials are kept, a new one replaces the oldest denial of
// the rule with the most kept denials.
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
		if _, due, _ := k.subjects.sample(hash, rule, now); due && k.dueOfNetwork(o.Client(), now) && k.allow(rule, now) {
			r := describeRefusal(o, i, now)
			if id := printable.Text(sentID(o.Request), 64); id != r.RequestID {
				r.Brought = id
			}
			if r.Subject != "" && i < len(o.Decision.Results) {
				r.SubjectID = SubjectID(o.Key(i))
			}
			k.keep(rule, r)
		}
	})
}

// dueOfNetwork counts a denial of an address, and reports whether to keep the denial. The subject does not matter,
// because the client may have invented it. A private address is not counted, because it may belong to a proxy that is
// not trusted, and stand for all clients.
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

// allow reports whether the bounds permit keeping another denial of a rule now.
func (k *Refusals) allow(rule string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.perRule.get(rule)
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
	r.of = k.perRule.get(rule)
	if len(k.kept) >= maxKept {
		k.displace()
	}
	r.of.n++
	k.ever++
	k.kept = append(k.kept, &r)
}

// displace removes the oldest denial of the rule with the most kept denials. The caller holds the lock.
func (k *Refusals) displace() {
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

// Find returns the kept denials of a request, by the ID of the request or of its trace, the latest first. There may
// be several, because several rules may have denied the request, and because IDs need not be unique.
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

// Kept returns the number of denials kept, and the time of the oldest, which is zero if none is kept.
func (k *Refusals) Kept() (n int, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.kept) == 0 {
		return 0, since
	}
	return len(k.kept), k.kept[0].At
}
