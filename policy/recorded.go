package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluicehq/sluice/policy/internal/parts"
)

// A Reading is a part of a request that rules read, such as the value of a header field. Observers record it, and
// [Request.Recorded] returns it when the request is decided again.
type Reading = parts.Reading

// ReadingState is the state of a part in a request.
type ReadingState = parts.Known

// The states of a [Reading].
const (
	Absent    = parts.Absent    // the request lacks the part
	Present   = parts.Present   // the request has the part, with the value
	Garbled   = parts.Garbled   // servers may read the part in several ways
	BrokenOff = parts.BrokenOff // Garbled, because the body broke off
	Faulty    = parts.Faulty    // rules cannot use the body; Value says what they need, such as "an uncompressed body"
	Unread    = parts.Unread    // no rule has read it
)

// RequestPart is a part that the rules or the tiers of a policy read from requests.
type RequestPart struct {
	// ID is the kind of the part, ":" and its name, such as "api_key:" or "header:X-Plan". It is the same for all
	// spellings of the part.
	ID string
	// Show is how much people are allowed to see of the values: "whole", "short" or "hash". If rules differ, the
	// strictest form applies. A part that is in no key has "hash". But a part that determines the tier has "whole" or,
	// if it is a secret that only the tiers use, "short".
	Show string
}

// requestPart is a compiled RequestPart.
type requestPart struct {
	parts.Part
	show showKey
}

// RequestParts returns the parts that rules read from requests besides method, host and path: parts of keys, parts that
// a [Distinct] counts, attributes and fields of the body that conditions read, and the parts that determine the tier.
// They are sorted by ID.
func (p *Policy) RequestParts() []RequestPart {
	all := make([]RequestPart, len(p.requestParts))
	for i := range p.requestParts {
		all[i] = RequestPart{p.requestParts[i].ID(), showKeyNames[p.requestParts[i].show]}
	}
	return all
}

// RequestField is a header field that conditions or costs of rules depend on.
type RequestField struct {
	Name string // canonical
	Cost bool   // a rule takes its cost from the field
}

// RequestFields returns the header fields that conditions and costs use, sorted by name. It leaves out fields that
// are only parts of keys.
func (p *Policy) RequestFields() (all []RequestField) {
	costs := map[string]bool{}
	for i := range p.rules {
		for _, h := range p.rules[i].headers {
			if !costs[h.name] {
				costs[h.name] = false // adds the field
			}
		}
		if name := p.rules[i].cost.header; name != "" {
			costs[name] = true
		}
	}
	for _, name := range sortedKeys(costs) {
		all = append(all, RequestField{name, costs[name]})
	}
	return all
}

// ResponseFields returns the canonical names of the response header fields that rules depend on, sorted.
func (p *Policy) ResponseFields() []string {
	names := map[string]bool{}
	for i := range p.rules {
		r := &p.rules[i]
		names[r.cost.responseHeader] = true
		if r.counts != nil {
			names[r.counts.unless] = true
		}
	}
	delete(names, "")
	return sortedKeys(names)
}

// Reading returns the reading of a part, by its index in [Policy.RequestParts]. Its texts are valid until the observer
// returns.
func (o *Observation) Reading(i int) Reading { return o.Policy().requestParts[i].Reading(&o.work.x) }

// Missed returns the indexes of the rules that do not apply to a recorded request because they need a part that is
// [Unread].
func (o *Observation) Missed() []int { return o.work.subjects.missed }

// PartID returns the ID of a key part as in a [RequestPart], or "" for an unknown part.
func PartID(part string) string {
	p, err := parts.Parse(part)
	if err != nil {
		return ""
	}
	return p.ID()
}

// PartValue converts a value of a key part from the form in a document, such as in an override, to the form in a
// [Reading]. Addresses stay as they are.
func PartValue(part, value string) string {
	p, err := parts.Parse(part)
	if err != nil || p.IsAddress() {
		return value
	}
	return p.Canonical(value)
}

// requestPartsOf returns the parts that the rules of a policy read.
func (p *Policy) requestPartsOf() []requestPart {
	seen, keyed := map[string]requestPart{}, map[string]bool{}
	add := func(part *parts.Part, show showKey, inKey bool) {
		if !part.IsRecorded() {
			return
		}
		id := part.ID()
		was, known := seen[id]
		switch {
		case !known || inKey && !keyed[id]:
			seen[id] = requestPart{*part, show}
		case inKey == keyed[id]:
			seen[id] = requestPart{was.Part, max(was.show, show)}
		}
		keyed[id] = keyed[id] || inKey
	}
	for i := range p.rules {
		r := &p.rules[i]
		for k := range r.key {
			add(&r.key[k], r.showOf(k), true)
		}
		for k := range r.reads {
			add(&r.reads[k], showHash, false)
		}
		for k := range r.bodies {
			add(&r.bodies[k].part, showHash, false)
		}
		for _, a := range r.attributes {
			if part, err := parts.Parse("attr:" + a.name); err == nil {
				add(&part, showHash, false)
			}
		}
	}
	for _, part := range []*parts.Part{p.tierFrom, p.tierSubject} {
		if part != nil {
			add(part, defaultShow(parts.List{*part}), !part.IsSecret())
		}
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b requestPart) int { return cmp.Compare(a.ID(), b.ID()) })
}

// showOf returns how much people see of the values of a part of the key. A rule that shortens its keys shortens names
// and secrets, and addresses if the key has no name and no secret. It shows all other parts whole.
func (r *rule) showOf(part int) showKey {
	if r.show == showShort && !r.key.Shortens(part) {
		return showWhole
	}
	return r.show
}
