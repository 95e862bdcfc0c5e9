package policy

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/policy/internal/money"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// Policy is a compiled [Document]. It never changes, and can be shared by several engines and goroutines.
type Policy struct {
	trusted     []netip.Prefix
	ipv6Prefix  int
	bodyLimit   int64 // bytes
	ignoreCase  bool
	tierFrom    *parts.Part // nil: requests do not name their tier
	tierSubject *parts.Part // nil: no subjects are looked up
	tier        string      // the default tier
	subjects    tierSubjects
	knownTiers  map[string]bool // see TierNames
	rules       []rule
	byName      map[string]int // the index of each rule
	index       index
	overrides   overrides
	reads       map[string]bool // see Reads
	fields      Fields
	cors        *CrossOrigin
	answers     *OwnAnswers
	prices      *money.Prices // may be nil
	listsUnused []string
	warnings    []Problem
	settles     bool     // a rule depends on the outcome
	numbers     *numbers // the numbers that rules read from responses; may be nil
	readsBody   bool     // a rule depends on the body
	queueless   bool     // no limit is a queue
	forms       bool     // a rule has an Answer
	marks       bool     // see Marks
	names       []string // see RuleNames
	fingerprint string   // see Fingerprint
	written     Document // the document without its overrides and subjects: see Changes
	watchOnly   bool     // see Shadowed
	original    *Policy  // the original policy of a shadow, or nil
	shadowEnds  int64    // end of the document's shadow: see compiler.shadowEnds
	adapts      bool     // a rule has an automatic limit of requests under way

	requestParts []requestPart // see RequestParts
}

// rule is a compiled [Rule].
type rule struct {
	index      int // index in Document.Rules
	name       string
	keyStart   string // the start of all keys of the rule: the name, and "/" if the key has no parts
	match      []*pattern.Pattern
	hosts      []string // lower case, "*.example.com" for all below it
	headers    []headerCondition
	attributes []attributeCondition
	bodies     []bodyCondition
	key        parts.List
	reads      parts.List // the parts that counters read in addition to the key
	together   []int      // the indexes of the key parts that are the hash tag
	missing    missing
	strict     bool // it refuses ambiguous requests
	readsBody  bool
	needsBody  bool // the rule cannot count requests without their body
	folds      bool // a part of its key folds names: see Observation.Sent
	algorithm  sluice.Algorithm
	// calendar reports that the rule sets no algorithm. Its limits by the month are then fixed windows.
	calendar    bool
	own         resolved
	tiers       tiersOfRule
	cost        cost
	debt        int64            // units that a key can owe
	most        map[uint64]int64 // units of the largest limit of each fingerprint; nil until all are compiled
	counts      *counting        // nil: all requests
	lock        *sluice.Plan     // the plan of its penalty, or nil
	onError     sluice.OnError
	consistency sluice.Consistency
	byDefault   bool             // onError is the default
	inFlight    bool             // it counts requests under way
	adaptive    *adaptive.Config // its automatic limit of requests under way, or nil
	class       adaptive.Class   // the class of its requests; 0: none
	classifies  bool             // it has a class, and no limit
	distinct    bool             // it counts different values
	counters    uint8            // its counters, a bit for each kind: see kinds
	sharing     *sharing         // nil: its limit is not shared
	answer      answerForm
	marks       bool // a request that does not fit passes with a mark
	shadow      bool
	rollout     uint16 // the rollout percentage, in hundredths of a percent; 0: enforced for all subjects
	exempt      bool
	block       bool
	show        showKey
	asks        bool         // it has a condition on hosts, headers, attributes or clients
	certain     bool         // it applies as soon as a pattern matches, or always if it has none
	clients     []*clientSet // empty: any
	notClients  []*clientSet
	source      string // see Rule
	file        string // the file with the rule
	line        int
}

// needs returns the parts of a request that the rule reads: for its key, and for counters.
func (r *rule) needs() parts.List { return slices.Concat(r.key, r.reads) }

// resolved are limits that apply together, and their origin: "rule", "tier:pro" or "override". An override that
// blocks or exempts has no limits, and neither has a rule with an automatic limit.
type resolved struct {
	limits        []limit
	from          string
	source        string // see Rule
	block, exempt bool
}

// tierLimits are the limits of a rule for a tier.
type tierLimits struct {
	tier string // as [Policy.canonicalTier] returns it
	resolved
}

// tiersOfRule are sorted by name. A rule has so few tiers that a search in a slice is faster than a map.
type tiersOfRule []tierLimits

// limits returns the limits for a tier, or nil.
func (all tiersOfRule) limits(tier string) *resolved {
	for i := range all {
		if all[i].tier == tier {
			return &all[i].resolved
		}
	}
	return nil
}

// missing is what happens to a request that lacks a part of a rule's key.
type missing uint8

const (
	share  missing = iota // all requests without the part share one count
	skip                  // the rule does not apply
	refuse                // it is refused as malformed
)

// ambiguous is what happens to a request with a path or a key part that servers may read in several ways.
type ambiguous uint8

const (
	byKey           ambiguous = iota // the default: see defaultAmbiguous
	refuseAmbiguous                  // it is refused as malformed
	chargeAmbiguous                  // one matching reading of the path is enough, and all ambiguous keys share one count
)

// TrustedProxies returns the document's trusted_proxies. The forwarded headers of these peers are trusted. The default
// is empty.
func (p *Policy) TrustedProxies() []netip.Prefix { return slices.Clone(p.trusted) }

// Warnings returns warnings about valid settings that are probably mistakes.
func (p *Policy) Warnings() []Problem {
	all := slices.Concat(p.warnings, p.overrides.warnings, p.subjects.warnings)
	sortProblems(all)
	return all
}

// RuleNames returns the names of the rules in the order of the document. Policies that differ only in their overrides
// and subjects share the list. Do not change it.
func (p *Policy) RuleNames() []string { return p.names }

// charges reports whether the rule has limits that the store counts.
func (r *rule) charges() bool { return !r.exempt && !r.block && !r.classifies && r.adaptive == nil }

// Reads reports whether rules read the header field with the given canonical name: as a condition, as the key part
// header:NAME, as a cost or a tier, or to compare it with a field of the body that it should repeat (see
// [Decision.Mismatched]). For a policy with "over: mark" it also reports true for [OverField].
func (p *Policy) Reads(name string) bool { return p.reads[name] }

// fieldsRead returns the names for [Policy.Reads].
func (p *Policy) fieldsRead() map[string]bool {
	names := make(map[string]bool)
	for _, part := range []*parts.Part{p.tierFrom, p.tierSubject} {
		if part != nil {
			names[part.Header()] = true
		}
	}
	for i := range p.rules {
		r := &p.rules[i]
		for _, part := range r.needs() {
			names[part.Header()], names[part.RepeatedBy()] = true, true
		}
		for _, h := range r.headers {
			names[h.name] = true
		}
		for b := range r.bodies {
			names[r.bodies[b].part.RepeatedBy()] = true
		}
		names[r.cost.header] = true
		names[OverField] = names[OverField] || r.marks // the upstream reads it
	}
	return names
}

// WithoutBody returns a problem for each rule that cannot count requests without their bodies, or has a condition on
// the body, for an integration that does not get bodies. asker is the name of the integration in the messages. Shadows
// are included, because their reports would be wrong.
func (p *Policy) WithoutBody(asker, hint string) Errors {
	return p.without(func(r *rule) bool { return r.needsBody || len(r.bodies) > 0 },
		fmt.Sprintf("the rule reads the bodies of requests, and %s does not send them", asker), hint)
}

// WithoutBodyOrPath is WithoutBody for an integration that gets neither bodies nor paths, and in which rules with
// "match" never apply.
func (p *Policy) WithoutBodyOrPath(asker, hint string) Errors {
	return p.without(func(r *rule) bool { return (r.needsBody || len(r.bodies) > 0) && len(r.match) == 0 },
		fmt.Sprintf("the rule reads the bodies of requests, and %s does not send them", asker), hint)
}

// WithoutTLS returns a problem with the hint for each rule that counts by tls_fingerprint, for an integration that
// does not terminate TLS. In such an integration, the rule would count all clients together, or never apply.
func (p *Policy) WithoutTLS(hint string) Errors {
	return p.without(func(r *rule) bool { return r.needs().Any((*parts.Part).NeedsTLS) },
		"the rule counts by tls_fingerprint, and the gateway does not terminate TLS", hint)
}

// without returns a problem for each rule for which wants returns true.
func (p *Policy) without(wants func(*rule) bool, message, hint string) (problems Errors) {
	for i := range p.rules {
		if r := &p.rules[i]; wants(r) {
			field := "key"
			if len(r.bodies) > 0 && !r.key.Any((*parts.Part).NeedsTLS) {
				field = "body"
			}
			problems = append(problems, Problem{
				Path: fmt.Sprintf("rules[%d].%s", r.index, field), Rule: r.name, Hint: hint, File: r.file, Line: r.line, Message: message,
			})
		}
	}
	return problems
}

// ByOutcome returns the names of the rules that depend on the outcome of requests: see [Engine.Settle]. In an
// integration that never learns the outcome, every request counts and costs its estimate.
func (p *Policy) ByOutcome() (names []string) {
	for i := range p.rules {
		if r := &p.rules[i]; r.settles() {
			names = append(names, r.name)
		}
	}
	return names
}

const (
	adhoc    = -1       // index of a rule that a caller supplies
	ofCaller = "caller" // origin of the limit of such a rule
)
