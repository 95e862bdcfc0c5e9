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

// Refusals are the last ones of an engine, so that one is found by the ID of its request: see
// [KeepRefusals].
type Refusals struct {
	subjects, networks refusalSampler

	mu      sync.Mutex // of those below
	pace    allowance
	perRule perRule    // n: refusals that are kept
	kept    []*Refusal // the oldest first
	ever    uint64     // how many have been kept
}

// The bounds that KeepRefusals promises.
const (
	maxKept                    = 4096
	keptFirst                  = 32         // of a subject, that are all kept
	keptOfNetwork              = 256        // likewise, of all subjects at one address
	keptOfRuleRate, keptOfRule = 100, 1_000 // a second, and at once
	keptRate, keptBurst        = 1_000, 4_000
)

// Refusal is what is kept of one. Texts that came with the request are printable, and cut; one that is
// empty is not known.
type Refusal struct {
	At time.Time
	// Shadow reports that the request was allowed: the rule would have denied it.
	Shadow bool
	Marked bool // it passed with a mark: see [policy.Result.Over]. It is a Shadow, too
	// Rule is empty for a request that lacked something: see Missing.
	Rule, Limit, LimitName, From string
	Because                      string // see policy.Result; "overload": see policy.Load
	Class                        string // of the request, if it was denied because of an overload
	Missing                      string
	// Subject is its key as its rule lets people see it, and SubjectID names it: see [Subject].
	Subject, SubjectID string
	Wait               int64  // seconds; negative: none that helps
	Address            string // unless it is part of a subject that is not shown whole
	Door, Method, Host string
	Path               string // without the query
	RequestID, TraceID string
	Brought            string // the X-Request-Id of the request, if that could not be sent back
	Instance           string // that has refused; see [Fleet.FindRefusals]

	of *ruleAllowance
}

// KeepRefusals keeps the last 4096 refusals, each under an ID: what the request brings in X-Request-Id or in
// traceparent, or that of its door, or else one that it gets (see [policy.Engine.NameRefusals]). A request that a
// shadow would have refused is kept only if it brings one. Call it before the first decision. It keeps the first 32
// within an hour of each subject of a rule and the first 256 of each public address (or IPv6 /64), then fewer and
// fewer, so that no client displaces all others, and at most 100 a second of a rule on average. New ones replace
// the oldest of the rule with the most, so an attack on one rule does not push out the refusals of others. They
// take at most some 4 MiB.
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

// dueOfNetwork counts a refusal of an address, whatever its subject, which may be one that was made up for the
// request. A private address may be an untrusted proxy, and stand for all clients.
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

// may reports whether one more is kept now.
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

// pushOut forgets the oldest of the rule of which the most are kept. The lock is held.
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

// Find returns the kept refusals of a request, by its ID or its trace's, latest first. Several rules may
// have refused it, and IDs need not be unique.
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

// isOf reports whether that is an ID of the request or of its trace.
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
