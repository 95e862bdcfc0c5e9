package policy

import (
	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/table"
)

// subjects are the subjects of the rules that apply to a request.
type subjects struct {
	list     []subject
	blocked  []blockedSubject
	keys     parts.Keys
	tier     tierOf
	override *Override        // the last override that was found
	value    string           // the value that the counter of the last rule reads
	limits   int              // how many limits all subjects have
	pardoned lack             // the part for which only shadows and rules with Enforce would deny the request
	blocks   map[string]int64 // see Engine.blocksNow
	class    adaptive.Class   // the class of the request; 0: no rule has a class
	loads    []loadSubject    // of automatic limits of requests under way
	entered  bool             // loads were evaluated

	classifying []int // indexes of the rules with a class and no limit that apply
	missed      []int // see Observation.Missed
}

// subject is the subject of a rule for one request.
type subject struct {
	rule     *rule
	by       *resolved   // the limits of the subject, and their origin
	key      string      // its key, with a hash tag if the rule has one
	owner    string      // the key of the limit: key, unless tenants share the limit
	weight   int64       // its weight among these tenants
	reserved reservation // for a rule that reads the response
	shadow   bool        // the rule denies the subject nothing
	value    string      // the value that a counter of the rule reads; empty: the request lacks it
	marks    bool        // see Result.Marks
}

func (s *subjects) reset() {
	s.forget()
	s.missed = s.missed[:0]
	s.tier.known, s.override, s.pardoned = false, nil, lack{}
}

func (s *subjects) forget() {
	s.keys.Reset()
	s.list, s.blocked, s.loads = s.list[:0], s.blocked[:0], s.loads[:0]
	s.classifying = s.classifying[:0]
	s.limits, s.class, s.entered = 0, 0, false
}

// effect is the effect of a rule on a request that it matches.
type effect uint8

const (
	charged    effect = iota
	skipped           // the request lacks a part of the key, so the rule does not apply
	refused           // the request lacks a part of the key, so the rule refuses it as malformed
	exempted          // the subject is exempt
	partial           // the request is part of one that the rule has counted
	barred            // the subject is blocked
	classified        // the rule has a class and no limit
	adapted           // the rule has an automatic limit of requests under way
)

// resolve adds the subject of a rule. If the request lacks a part of the key, so that the rule skips or refuses it,
// resolve returns the part.
func (s *subjects) resolve(in *input, m *matched) (*parts.Part, effect) {
	r := m.rule
	if r.class != 0 && !m.unclassed {
		s.classify(r.class)
	}
	if r.classifies {
		s.classifying = append(s.classifying, r.index)
		return nil, classified
	}
	if (r.inFlight || r.adaptive != nil) && in.request.Part {
		return nil, partial
	}
	if m.pattern != nil {
		in.x.Route = m.pattern.Key
	}
	s.keys.Begin(r.keyStart)
	for i := range r.key {
		p := &r.key[i]
		value, found := p.Value(&in.x)
		switch {
		case found && p.IsVerbatim():
			s.keys.AddWritten(value)
		case found:
			s.keys.Add(value)
		default:
			if s.miss(in, r) {
				return p, skipped
			}
			if out := s.missing(in, r, p); out != charged {
				return p, out
			}
			s.keys.AddWritten(parts.Shared)
		}
	}
	if r.reads != nil {
		if part, out := s.readValue(in, r); out != charged {
			return part, out
		}
	}
	return nil, s.add(in, r)
}

// miss reports whether the rule has just read a part without a recorded value, and records the rule.
func (s *subjects) miss(in *input, r *rule) bool {
	if !in.x.Unread {
		return false
	}
	in.x.Unread, s.missed = false, append(s.missed, r.index)
	return true
}

// readValue reads the part that a counter of the rule needs besides the key.
func (s *subjects) readValue(in *input, r *rule) (*parts.Part, effect) {
	for i := range r.reads {
		found := false
		if s.value, found = r.reads[i].Value(&in.x); !found {
			s.value = ""
			if s.miss(in, r) {
				return &r.reads[i], skipped
			}
			return &r.reads[i], s.missing(in, r, &r.reads[i])
		}
	}
	return nil, charged
}

// add adds the subject of the key that has been built, unless it is blocked or exempt.
func (s *subjects) add(in *input, r *rule) effect {
	by, until := &r.own, int64(0)
	if r.tiers != nil || in.policy.overrides.byRule != nil {
		by, until = s.inForce(in, r)
	}
	shadow := in.policy.isShadow(r) || r.isPartial() && r.isShadowFor(s.keys.Bytes())
	switch {
	case (by.block || len(s.blocks) > 0) && s.isBlocked(in, r, by, until, shadow):
		return barred
	case by.exempt:
		return exempted
	}
	if r.adaptive != nil {
		s.addLoad(in, r, shadow)
		return adapted
	}
	to := extend(&s.list)
	to.rule, to.by, to.value, to.shadow, to.marks = r, by, s.value, shadow, r.marks && !shadow
	if r.sharing != nil {
		to.weight = r.sharing.weightOf(s, in)
		to.owner, to.key = s.keys.Tenant(r.sharing.owner, r.together)
	} else {
		to.key = s.keys.Key(r.together)
		to.owner = to.key
	}
	s.limits += len(by.limits)
	return charged
}

// missing returns the effect of a part that the request lacks. A garbled part does not make a rule with "missing:
// skip" skip the request. Otherwise, clients could evade the rule by garbling the part.
func (s *subjects) missing(in *input, r *rule, p *parts.Part) effect {
	refuses := r.missing == refuse || r.strict && in.x.Garbled() && !in.x.BrokeOff
	switch {
	case refuses && !r.isLenient():
		return refused
	case refuses && s.pardoned.part == "":
		s.pardoned = in.lackOf(p)
	}
	switch {
	case r.missing == refuse, r.missing == skip && !in.x.Garbled():
		return skipped
	}
	return charged
}

// overridden is From in a [Result] for the limits or the block of an override.
const overridden = "override"

// inForce returns the limits of the subject with the key that was built: the limits of its override until the
// override expires, else the limits of its tier, else the rule's own limits.
func (s *subjects) inForce(in *input, r *rule) (by *resolved, until int64) {
	if in.policy.overrides.byRule != nil {
		if e, own := s.overrideOf(in, r); e != nil {
			return own, e.Until
		}
	}
	if r.tiers != nil {
		if t := r.tiers.limits(s.tierName(in)); t != nil {
			return t, 0
		}
	}
	return &r.own, 0
}

// overrideOf returns the override in force for the subject with the key that was built, and its limits, or nil.
func (s *subjects) overrideOf(in *input, r *rule) (*table.Entry, *resolved) {
	all := &in.policy.overrides
	if t := all.forRule(r); t != nil {
		if e := t.Find(s.keys.Subject, in.clock); e != nil {
			s.override = &all.list[e.Item]
			return e, t.Value(e)
		}
	}
	return nil, nil
}

// resolve finds the subjects of the rules that apply.
func (w *work) resolve(d *Decision) {
	if w.matches.ambiguous {
		d.Missing = ambiguousPath
	} else if w.matchBodies(); w.matches.lack.part != "" {
		d.Missing = w.matches.lack.String()
	} else {
		w.resolveAll(d)
	}
	if d.Missing != "" {
		w.resolveMalformed()
	}
}

// resolveAll finds the subjects of all rules that apply, up to the first rule that denies the request for a
// missing part.
func (w *work) resolveAll(d *Decision) {
	rules := w.matches.rules
	for i := range rules {
		if part, out := w.subjects.resolve(&w.input, &rules[i]); out == refused {
			d.Missing = w.lackOf(part).String()
			return
		}
	}
	if w.policy.readsBody {
		d.Missing = w.unreadable()
	}
}

// resolveMalformed finds the subjects of a malformed request, so that such requests are charged, too. Rules that read
// the body do not count such a request. If the path is ambiguous, neither do rules with patterns.
func (w *work) resolveMalformed() {
	w.forget()
	if w.mode == GiveBack {
		return
	}
	for i := range w.matches.rules {
		if m := &w.matches.rules[i]; !m.rule.readsBody && (!w.matches.ambiguous || m.pattern == nil) {
			w.subjects.resolve(&w.input, m)
		}
	}
}

// resolveSubject adds the subject of a request with a Subject. It reports false if the decision is complete.
func (w *work) resolveSubject(d *Decision) (undecided bool) {
	s, asked := &w.subjects, w.request.Subject
	r := asked.rule
	if r.index != adhoc {
		if r = w.presentRule(r, d); r == nil {
			return false
		}
	}
	s.keys.Begin(r.keyStart)
	for _, v := range asked.values {
		s.keys.AddWritten(v)
	}
	if r.tiers != nil || r.sharing != nil {
		tier, known := s.tierOfKey(&w.input, r)
		if !known {
			tier = w.policy.tier
		}
		s.tier.name, s.tier.from, s.tier.known = tier, tierDefault, true
	}
	if part, out := s.readValue(&w.input, r); out == refused {
		w.malformed(d, lack{part.String(), w.x.Garbled()}.String())
		return false
	} else if out == charged {
		s.add(&w.input, r)
	}
	return true
}

// presentRule returns the rule of the same name in the policy in force. If that rule is gone, does not count, or has
// another key, presentRule makes the decision and returns nil.
func (w *work) presentRule(was *rule, d *Decision) *rule {
	i, known := w.policy.byName[was.name]
	if !known {
		d.Allowed = true
		return nil
	}
	r := &w.policy.rules[i]
	switch {
	case r.exempt:
		d.Allowed, d.Exempt = true, true
	case r.classifies, r.adaptive != nil:
		d.Allowed = true
	case r.block:
		if w.matches.barring = append(w.matches.barring, r); r.shadow {
			d.Allowed = true
		} else {
			refuseBarred(d, r)
		}
	case !sameKey(r, was):
		w.malformed(d, "the key that rule "+r.name+" has now")
	default:
		return r
	}
	return nil
}
