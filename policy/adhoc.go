package policy

import (
	"unsafe"

	"github.com/sluicehq/sluice"
)

const (
	adhoc    = -1       // is the index of a rule that a caller has brought
	ofCaller = "caller" // is where its limit comes from
)

// Adhoc returns a subject that belongs to no rule of the policy: the caller brings the limit. Answers
// give name as the rule. Name and key together identify the subject, and cannot collide with any other
// key in this store, whatever they are. Counts belong to them and to the kind of the limit, so a
// changed burst keeps them.
func (e *Engine) Adhoc(name, key string, plan *sluice.Plan, onError sluice.OnError) *Subject {
	r := &rule{
		index: adhoc, name: name, cost: cost{fixed: 1}, onError: onError,
		own: resolved{limits: []limit{{plan: plan}}, from: ofCaller},
	}
	// The keys of rules begin with their names, or with the tag before these.
	r.keyStart = string(sluice.AppendKeyPart([]byte{'/'}, name))
	s := &Subject{engine: e, rule: r}
	s.setAdhocKey(key)
	return s
}

// AdhocInto is [Engine.Adhoc] for another key of the same limit, with the subject in into. It
// allocates nothing if into has been used this way before. What [Subject.Key] returned for into is no
// longer valid afterwards, and no decision about it may be under way.
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
