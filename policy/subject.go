package policy

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
)

// Subject is one of those whom a rule tells apart, for administration: what the store has
// counted for it can be looked at and given back, and it can be blocked. It goes by the policy
// that was in force when [Engine.Subject] returned it.
//
// A subject has a count for each kind of limit that it may be held to: those of its override if
// one has limits, else those of its tier, where the key alone says that, else the rule's own and
// those of all tiers. Where limits count alike, it is one.
type Subject struct {
	engine  *Engine
	rule    *rule
	charged string    // the key, with its hash tag if it has one
	key     string    // the key
	inForce []counted // with different fingerprints
	all     []counted // with those that an override has replaced
	by      *Override // or nil
}

// counted is a limit that a subject may be held to, and where it comes from.
type counted struct {
	limit
	from, source string
}

// ErrStoreAway is returned where the shared store did not answer.
var ErrStoreAway = errors.New("policy: the shared store does not answer, and nothing was changed in it")

// Subject returns the subject of a rule with these values of its key, by the parts as the rule
// writes them; they are compared as those of requests are, so that "2001:db8::1" stands for its
// network. An empty value is for the requests that lack the part.
func (e *Engine) Subject(rule string, key map[string]string) (*Subject, error) {
	p := e.policy.Load()
	i, known := p.byName[rule]
	if !known {
		return nil, fmt.Errorf("policy: there is no rule %s: %s", spelling.Quote(rule), spelling.Suggest(rule, ruleNames(p)))
	}
	r := &p.rules[i]
	if r.exempt {
		return nil, fmt.Errorf("policy: rule %q is exempt, and counts nothing", rule)
	}
	if r.block {
		return nil, fmt.Errorf("policy: rule %q blocks, and counts nothing", rule)
	}
	s := scratch{policy: p, request: new(Request)}
	s.keys.begin(r.keyStart)
	if err := s.keys.addSubject(p, r, key); err != nil {
		return nil, fmt.Errorf("policy: rule %q: %w", rule, err)
	}
	out := &Subject{engine: e, rule: r, key: string(s.keys.text)}
	out.inForce = s.limitsInForce(r)
	out.by = s.override
	out.all = distinct(append(out.inForce[:len(out.inForce):len(out.inForce)], r.limits()...))
	out.charged = s.keys.key(r.together)
	return out, nil
}

// limitsInForce returns the limits that the subject may be held to whose key has been built.
func (s *scratch) limitsInForce(r *rule) []counted {
	if _, says := s.policy.overrides.find(r, s); says != nil && len(says.limits) > 0 {
		return says.counted()
	}
	if tier, known := s.tierOf(r); !known {
		return r.limits()
	} else if limits := r.tiers[tier]; limits != nil {
		return limits.counted()
	}
	return r.own.counted()
}

// Override returns the override that holds for the subject, if there is one. Do not change what it
// refers to.
func (s *Subject) Override() (o Override, found bool) {
	if s.by == nil {
		return o, false
	}
	return *s.by, true
}

// addSubject adds the values of a subject.
func (k *keyText) addSubject(p *Policy, r *rule, key map[string]string) error {
	if !knows(r.key, key) {
		for _, name := range sortedKeys(key) {
			if !hasPart(r.key, name) {
				return fmt.Errorf("%s is not a part of its key: %s", spelling.Quote(name), spelling.Suggest(name, partNames(r.key)))
			}
		}
	}
	for i := range r.key {
		part := &r.key[i]
		v, given := key[part.text]
		switch {
		case !given && part.kind == constPart:
			k.add(part.name)
		case !given:
			return fmt.Errorf("which %s? Its key is %s", part.text, spelling.OneOf(partNames(r.key)))
		case v == "":
			k.addShared()
		default:
			normal, err := part.normal(v, p.ipv6Prefix)
			if err != nil {
				return fmt.Errorf("%s: %w", part.text, err)
			}
			k.add(normal)
		}
	}
	return nil
}

// limits returns the rule's own limits and those of its tiers, one of each kind.
func (r *rule) limits() []counted {
	all := r.own.counted()
	for _, name := range sortedKeys(r.tiers) {
		all = append(all, r.tiers[name].counted()...)
	}
	return distinct(all)
}

func (r *resolved) counted() (all []counted) {
	for _, l := range r.limits {
		all = append(all, counted{l, r.from, r.source})
	}
	return all
}

// distinct returns the first limit of each kind: those that count alike share what is counted.
func distinct(limits []counted) (all []counted) {
	seen := make(map[uint64]bool)
	for _, l := range limits {
		if !seen[l.plan.Fingerprint] {
			seen[l.plan.Fingerprint] = true
			all = append(all, l)
		}
	}
	return all
}

// Key returns the key of the subject, as a [RuleTrace] has it but without a hash tag.
func (s *Subject) Key() string { return s.key }

// Peek returns the state of each count of the subject that is in force, and takes nothing.
func (s *Subject) Peek(ctx context.Context) ([]Result, error) { return s.take(ctx, s.inForce, 0) }

// Refund gives back units to each of them, and returns what they are then. What is given back
// beyond what is used is lost. With a shared store, other instances may refuse it from memory for
// another second.
func (s *Subject) Refund(ctx context.Context, units int64) ([]Result, error) {
	if units < 1 {
		return nil, fmt.Errorf("policy: Refund of %d units: must be at least 1", units)
	}
	return s.take(ctx, s.inForce, -units)
}

// Reset forgets all that was counted for the subject, also under limits of the rule that are
// not in force, and lifts its penalty. With a shared store this is in force on all instances
// within milliseconds, or within a second on those that do not hear of it: see package redisstore.
func (s *Subject) Reset(ctx context.Context) error {
	_, err := s.take(ctx, s.all, sluice.All)
	return err
}

func (s *Subject) take(ctx context.Context, limits []counted, cost int64) ([]Result, error) {
	charges := make([]sluice.Charge, len(limits))
	for i, l := range limits {
		charges[i] = sluice.Charge{Key: s.charged, Plan: l.plan, Cost: cost}
	}
	receipts, lock, err := s.takeLocked(ctx, charges, cost)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(limits))
	for i, l := range limits {
		if receipts[i].Origin.Degraded() {
			return nil, ErrStoreAway
		}
		results[i] = Result{Rule: s.rule.name, Name: l.name, Plan: l.plan, From: l.from, Source: l.source, Shadow: s.rule.shadow, Decision: l.plan.Decide(cost, receipts[i])}
		results[i].LockOut(lock)
	}
	return results, nil
}
