package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/money"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Subject is one key of a rule, such as one address under a rule by client_ip. Each subject has counts of its own. A
// Subject is for administration: its counts in the store can be read, refunded and reset, and it can be blocked. Its
// methods use the policy that was in force when [Engine.Subject] returned it.
//
// A subject has one count for each kind of limit that may apply to it. If it has an override with limits, these are
// the limits of the override; else, if the key alone determines its tier, the limits of the tier; else the rule's
// own limits and the limits of all tiers. Limits that count alike share one count.
//
// For a tenant of a shared limit, a refund also goes to the limit, and a reset leaves the limit as it is, because
// other tenants share it.
type Subject struct {
	engine  *Engine
	policy  *Policy // nil if the caller supplied the limit
	rule    *rule
	charged string   // the key, with its hash tag if it has one
	owner   string   // the key of the limit that the subject shares, if any
	weight  int64    // the weight in a shared limit if the key determines the weight, else 0
	key     string   // the key
	values  []string // the values of the key parts, as written in the key
	spelled []string // values with names as the caller or request spelled them; nil if they are equal to values
	text    []byte   // memory of the key if the caller supplied the limit
	shadow  bool     // the rule is a shadow for the subject
}

// ErrStoreUnavailable is returned if the shared store did not answer. If only the answer was lost, the store has made
// the change.
var ErrStoreUnavailable = errors.New("policy: the shared store is unavailable, and the change may or may not have been made")

// Subject returns the subject of a rule with these values in its key. The map is keyed by the key parts as written
// in the rule. Values are normalized as values of requests are, so that "2001:db8::1" stands for its network. An
// empty value stands for the requests that lack the part.
func (e *Engine) Subject(rule string, key map[string]string) (*Subject, error) {
	p := e.current()
	r, err := p.countingRule(rule)
	if err != nil {
		return nil, err
	}
	var k parts.Keys
	k.Grow(subjectSize(r, key), len(r.key))
	k.Begin(r.keyStart)
	if err := addSubject(&k, p, r, key); err != nil {
		return nil, fmt.Errorf("policy: rule %q: %w", rule, err)
	}
	s := e.subject(p, r, &k)
	s.spell(func(i int) string {
		if v := key[r.key[i].String()]; v != "" && len(v) <= sluice.MaxKeyPart {
			return string(sluice.AppendKeyPart(nil, v))
		}
		return s.values[i]
	})
	return s, nil
}

// spell keeps the original spelling of the subject's names. original(i) returns the original value of part i, in
// the form of a key.
func (s *Subject) spell(original func(i int) string) {
	for i := range s.rule.key {
		if !s.rule.key[i].Folds() {
			continue
		}
		if given := original(i); given != s.values[i] {
			if s.spelled == nil {
				s.spelled = slices.Clone(s.values)
			}
			s.spelled[i] = given
		}
	}
}

// Shown returns the subject's key in the form for people, with names in their original spelling: see
// [Policy.ShownKey].
func (s *Subject) Shown() string {
	switch {
	case s.policy == nil: // the caller supplied the limit
		return new(Policy).ShownKey(s.key)
	case s.spelled == nil:
		return s.policy.ShownKey(s.key)
	}
	return s.policy.ShownSent(s.key, s.rule.name+"/"+strings.Join(s.spelled, "/"))
}

// SubjectOf returns the subject that is counted under a key from [Subject.Key], [Observation.Key],
// [Observation.Sent] or a [RuleTrace]. In a key, a value of more than [sluice.MaxKeyPart] bytes is replaced by its
// hash: such a subject works like any other, but the value is unknown (see [Subject.Hashed]).
func (e *Engine) SubjectOf(key string) (*Subject, error) {
	p := e.current()
	name, subject := parts.CutKey(key)
	if name == "" {
		return nil, fmt.Errorf("policy: the key %s belongs to no rule: a caller sends its limit", spelling.Quote(key))
	}
	r, err := p.countingRule(name)
	if err != nil {
		return nil, err
	}
	if values, ok := r.key.Split(subject); ok {
		var k parts.Keys
		k.Begin(r.keyStart)
		for i, v := range values {
			k.AddWritten(r.key[i].Fold(v))
		}
		out := e.subject(p, r, &k)
		if out.spell(func(i int) string { return values[i] }); out.spelled != nil || out.key == key || out.charged == key {
			return out, nil
		}
	}
	return nil, fmt.Errorf("policy: rule %q counts nothing under the key %s", name, spelling.Quote(key))
}

// countingRule returns the rule of that name, or an error if the rule is unknown or counts nothing.
func (p *Policy) countingRule(name string) (*rule, error) {
	i, known := p.byName[name]
	if !known {
		return nil, fmt.Errorf("policy: unknown rule %s: %s", spelling.Quote(name), spelling.Suggest(name, ruleNames(p)))
	}
	switch r := &p.rules[i]; {
	case r.exempt:
		return nil, fmt.Errorf("policy: rule %q is exempt, and counts nothing", name)
	case r.block:
		return nil, fmt.Errorf("policy: rule %q blocks, and counts nothing", name)
	case r.classifies:
		return nil, fmt.Errorf("policy: rule %q has only a class, and counts nothing", name)
	case r.adaptive != nil:
		return nil, fmt.Errorf("policy: rule %q has an automatic limit, which has no subjects in the store", name)
	default:
		return r, nil
	}
}

// subject returns the subject of a rule with the key that k has built.
func (e *Engine) subject(p *Policy, r *rule, k *parts.Keys) *Subject {
	s := &Subject{engine: e, policy: p, rule: r, key: k.Key(nil), values: k.Values(), shadow: r.isShadowFor(k.Bytes())}
	if r.sharing == nil {
		s.charged = k.Key(r.together)
		return s
	}
	s.owner, s.charged = k.Tenant(r.sharing.owner, r.together)
	w := s.newWork()
	if tier, known := w.subjects.tierOfKey(&w.input, r); known {
		s.weight = r.sharing.weight(tier)
	}
	return s
}

// newWork returns a work with the key of the subject, which can be used to find its limits.
func (s *Subject) newWork() *work {
	w := &work{input: input{policy: s.policy, request: new(Request)}}
	k := &w.subjects.keys
	k.Begin(s.rule.keyStart)
	for _, v := range s.values {
		k.AddWritten(v)
	}
	return w
}

// limits returns the limits that may apply to the subject, one for each fingerprint, and the override that sets them,
// or nil.
func (s *Subject) limits() ([]counted, *Override) {
	if s.policy == nil {
		return s.rule.own.counted(), nil
	}
	w := s.newWork()
	limits := s.possibleLimits(w)
	return limits, w.subjects.override
}

// Rule returns the name of the subject's rule, or the name that was given to [Engine.Adhoc].
func (s *Subject) Rule() string { return s.rule.name }

// Enforced returns a text about whether a rule with a rollout percentage is enforced for the subject, such as
// "enforced for 10 % of subjects, but not for this one". Without a percentage it returns "".
func (s *Subject) Enforced() string {
	if !s.rule.isPartial() {
		return ""
	}
	return s.rule.whyPartial(s.shadow)
}

// Values returns the values of the subject's key, keyed by the key parts as written in the rule, with names in
// their original spelling. [Engine.Subject] accepts such a map. A part that the requests of the subject lack has an
// empty value. An unknown value is replaced by its hash, which matches no request: see Hashed.
func (s *Subject) Values() map[string]string {
	all, values := make(map[string]string, len(s.rule.key)), s.values
	if s.spelled != nil {
		values = s.spelled
	}
	for i := range s.rule.key {
		all[s.rule.key[i].String()], _ = s.rule.key[i].Unwrite(values[i], s.rule.match)
	}
	return all
}

// Hashed returns the parts of the subject's key with unknown values, which were too long to be kept. Such a subject
// can be read, refunded, reset and blocked, but neither [Engine.Subject] nor an override can name it by its Values.
func (s *Subject) Hashed() (names []string) {
	for i := range s.rule.key {
		if _, state := s.rule.key[i].Unwrite(s.values[i], s.rule.match); state == parts.Hashed {
			names = append(names, s.rule.key[i].String())
		}
	}
	return names
}

// possibleLimits returns the limits that may apply to the subject. w is the result of newWork.
func (s *Subject) possibleLimits(w *work) []counted {
	r := s.rule
	if _, by := w.subjects.overrideOf(&w.input, r); by != nil && len(by.limits) > 0 {
		return by.counted()
	}
	if tier, known := w.subjects.tierOfKey(&w.input, r); !known {
		return r.limits()
	} else if limits := r.tiers.limits(tier); limits != nil {
		return limits.counted()
	}
	return r.own.counted()
}

// Override returns the override that applies to the subject, if there is one. Do not change its map and slices.
func (s *Subject) Override() (o Override, found bool) {
	_, by := s.limits()
	if by == nil {
		return o, false
	}
	return *by, true
}

// addSubject adds the values of a subject.
func addSubject(k *parts.Keys, p *Policy, r *rule, key map[string]string) error {
	if unknown := r.key.Unknown(key); len(unknown) > 0 {
		return fmt.Errorf("%s is not a part of its key: %s", spelling.Quote(unknown[0]), spelling.Suggest(unknown[0], r.key.Names()))
	}
	for i := range r.key {
		part := &r.key[i]
		v, given := key[part.String()]
		if !given {
			v, given = part.Constant()
		}
		switch {
		case !given:
			return fmt.Errorf("no value for %s: the key is %s", part, strings.Join(r.key.Names(), ", "))
		case v == "":
			k.AddWritten(parts.Shared)
		default:
			normal, err := part.Normal(v, p.ipv6Prefix)
			if err != nil {
				return fmt.Errorf("%s: %w", part, err)
			}
			k.Add(normal)
		}
	}
	return nil
}

// subjectSize returns about how many bytes the key of a subject has.
func subjectSize(r *rule, key map[string]string) int {
	n := len(r.keyStart) + len(r.key)
	for _, v := range key {
		n += len(v)
	}
	return n
}

// Key returns the key of the subject: the Key of a [RuleTrace], but without a hash tag.
func (s *Subject) Key() string { return s.key }

// Peek returns the state of the subject's count under each limit in force, and takes nothing.
func (s *Subject) Peek(ctx context.Context) ([]Result, error) {
	limits, _ := s.limits()
	return s.take(ctx, limits, 0)
}

// Refund gives back units to the subject's count under each limit in force, and returns the states of the counts
// afterwards. For limits in USD, units are in micro-USD, rounded down to the units in which the limit counts. Units
// beyond those in use are lost. With a shared store, other instances may deny the subject from memory for a moment
// longer: mostly for some 60 ms, and at most for a second (see package redisstore).
func (s *Subject) Refund(ctx context.Context, units int64) ([]Result, error) {
	if units < 1 {
		return nil, fmt.Errorf("policy: Refund of %d units: must be at least 1", units)
	}
	if s.rule.inFlight {
		return nil, fmt.Errorf("policy: rule %q counts requests in flight, which end by themselves: Reset frees all permits", s.rule.name)
	}
	if s.rule.distinct {
		return nil, fmt.Errorf("policy: rule %q counts different values, which cannot be refunded: Reset forgets all", s.rule.name)
	}
	if s.Queues() {
		return nil, fmt.Errorf("policy: rule %q is a queue of waiting requests: Reset empties it", s.rule.name)
	}
	limits, _ := s.limits()
	return s.take(ctx, limits, -units)
}

// Queues reports whether the rule is a leaky bucket, where requests wait in a queue. Such a subject can only be
// reset: single units cannot be given back.
func (s *Subject) Queues() bool {
	return slices.ContainsFunc(s.rule.own.limits, func(l limit) bool { return isQueue(l.plan) })
}

// Reset forgets all counts of the subject, including those under limits of the rule that are not in force, and
// lifts its penalty. Requests that wait in a queue keep their turns. With a shared store, the reset takes effect on
// all instances within milliseconds, or within a second on instances that do not get the message about it: see
// package redisstore.
func (s *Subject) Reset(ctx context.Context) error {
	limits, _ := s.limits()
	all := distinct(append(limits, s.rule.limits()...))
	_, err := s.take(ctx, all, sluice.All)
	for _, l := range all {
		s.engine.turns.Forget(s.charged, l.plan)
	}
	return err
}

func (s *Subject) take(ctx context.Context, limits []counted, cost int64) ([]Result, error) {
	c := &s.engine.newWork().charges
	for _, l := range limits {
		c.list = append(c.list, sluice.Charge{Key: s.charged, Plan: l.plan, Cost: money.Refund(cost, l.plan), Consistency: s.rule.consistency})
	}
	c.use(s.rule.counters)
	for _, k := range c.active {
		k.administer(s, c, cost)
	}
	c.receipts = make([]sluice.Receipt, len(c.list))
	if err := s.engine.store.Take(ctx, c.list, c.receipts); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(c.receipts, func(r sluice.Receipt) bool { return r.Origin.Degraded() }) {
		return nil, ErrStoreUnavailable
	}
	results := make([]Result, len(limits))
	for i, l := range limits {
		r := &c.receipts[i]
		if cost == 0 && s.engine.turns.Offer(&c.list[i], 1, r) {
			c.list[i].Cost = 1
		}
		results[i] = Result{Rule: s.rule.name, Name: l.name, Plan: l.plan, From: l.from, Source: l.source, Owed: l.plan.Owed(&r.Receipt), Unit: s.rule.cost.unit, Shadow: s.shadow || s.rule.marks, Marks: s.rule.marks && !s.shadow, at: int32(s.rule.index) + 1, Decision: l.plan.Decide(c.list[i].Cost, *r)}
		for _, k := range c.active {
			k.join(c, i, &results[i])
		}
	}
	return results, nil
}

// Adhoc returns a subject that belongs to no rule of the policy: the caller supplies the limit. Decisions contain
// name as the name of the rule. Name and key together identify the subject, and never collide with any other key in
// this store. A count is identified by name, key and the kind of the limit; so it is kept if only the burst changes.
func (e *Engine) Adhoc(name, key string, plan *sluice.Plan, onError sluice.OnError) *Subject {
	r := &rule{
		index: adhoc, name: name, cost: cost{fixed: 1}, onError: onError,
		own: resolved{limits: []limit{{plan: plan}}, from: ofCaller},
	}
	// This key never collides with the key of a rule, which starts with the rule's name or a hash tag.
	r.keyStart = string(sluice.AppendKeyPart([]byte{'/'}, name))
	s := &Subject{engine: e, rule: r}
	s.setAdhocKey(key)
	return s
}

// AdhocInto is [Engine.Adhoc] for another key of the same limit. The subject is stored in *into. To avoid allocations,
// reuse one Subject for all calls. Each call makes the earlier results of into.Key invalid. Do not pass a Subject while
// a decision about it is under way.
func (s *Subject) AdhocInto(into *Subject, key string) {
	into.engine, into.policy, into.rule = s.engine, nil, s.rule
	into.setAdhocKey(key)
}

func (s *Subject) setAdhocKey(key string) {
	begin := len(s.rule.keyStart) + 1
	s.text = append(append(s.text[:0], s.rule.keyStart...), '/')
	s.text = sluice.AppendKeyPart(s.text, key)
	s.charged = unsafe.String(unsafe.SliceData(s.text), len(s.text))
	s.key, s.values = s.charged, append(s.values[:0], s.charged[begin:])
}

// showKey is how much of a rule's keys is shown to people.
type showKey uint8

const (
	showWhole showKey = iota // all of it
	showShort                // the beginning and the end of values that clients choose
	showHash                 // a pseudonym
)

var showKeyNames = []string{showWhole: "whole", showShort: "short", showHash: "hash"}

// ShownKey returns a key as it is shown to people: whole, shortened or hashed by its rule's ShowKey (see [Rule]),
// without the name of the rule. It is one printable line: characters that are not printable, or that would change
// the text around them, are escaped. Values are separated by " · ". A key of [Engine.Adhoc] is shown whole. Values of
// any other key without a rule in the policy are shortened.
func (p *Policy) ShownKey(key string) string { return p.ShownSent(key, key) }

// ShownSent is ShownKey with the names as a request spelled them: see [Observation.Sent]. Under "show_key: hash", the
// result is always made from key. If sent cannot be a spelling of key under its rule, it is ignored.
func (p *Policy) ShownSent(key, sent string) string {
	name, subject := parts.CutKey(key)
	if i, known := p.byName[name]; known {
		r := &p.rules[i]
		if values, ok := r.key.Split(subject); ok {
			if _, spelled := parts.CutKey(sent); r.folds && r.show != showHash && spelled != subject {
				if as, ok := r.key.Split(spelled); ok {
					values = as
				}
			}
			return r.shown(subject, values)
		}
	}
	if name == "" { // a key of Adhoc
		_, own, _ := strings.Cut(subject, "/")
		return string(parts.AppendShown(nil, own, false))
	}
	return parts.Join(strings.SplitN(subject, "/", maxKeyParts+1), func(int) bool { return true })
}

// ShownWhole reports whether the key is shown whole.
func (s *Subject) ShownWhole() bool { return s.rule.show == showWhole }

// Pseudonym returns the form of the key under "show_key: hash". Subjects with equal shortened keys have different
// pseudonyms. A pseudonym is the same for all rules with the same key parts, on all instances. It does not protect
// a key that can be guessed, because it confirms the guess.
func (s *Subject) Pseudonym() string {
	_, subject := parts.CutKey(s.Key())
	return s.rule.key.Pseudonym(subject)
}

// shown is ShownKey for a key of the rule, without its name.
func (r *rule) shown(subject string, values []string) string {
	switch {
	case len(r.key) == 0:
		return "everybody"
	case r.show == showHash:
		return r.key.Pseudonym(subject)
	}
	return r.key.Shown(values, r.show == showShort)
}

// defaultShow returns the showKey of a rule that does not set it.
func defaultShow(key parts.List) showKey {
	if key.Any((*parts.Part).IsSecret) {
		return showShort
	}
	return showWhole
}

// SecretPart reports whether values of a key part, such as "api_key", are secrets, with which a reader could act as
// another client. Keys with such a part are shortened unless the rule sets ShowKey.
func SecretPart(part string) bool {
	p, err := parts.Parse(part)
	return err == nil && p.IsSecret()
}

// Shorten returns the part of a value by which people recognize the value without being able to use it: the first
// four characters and the last two. A value of less than 12 characters is cut to the first two, and one of less
// than 6 to none. An address on its own is cut to its network. The result is printable, as in [Policy.ShownKey].
func Shorten(value string) string { return string(parts.AppendShort(nil, value)) }
