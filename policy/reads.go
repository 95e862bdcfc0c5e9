package policy

import (
	"fmt"

	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Reads reports whether rules look at the header field of that canonical name by itself:
// as a condition, a part of a key, a cost or a tier.
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
		for k := range r.key {
			names[r.key[k].Header()] = true
		}
		for _, h := range r.headers {
			names[h.name] = true
		}
		names[r.cost.header] = true
	}
	return names
}

// WithoutBody returns a problem for each rule that reads the body of requests, for a door to which
// nobody brings bodies. The problems say who asks there, asker, and what to do about it, hint.
// Shadows are among them, since they would report what is not so.
func (p *Policy) WithoutBody(asker, hint string) Errors {
	return p.without(func(r *rule) bool { return r.readsBody },
		fmt.Sprintf("the rule reads the bodies of requests, and %s does not bring them", asker), hint)
}

// WithoutBodyOrPath is WithoutBody for a door whose askers have no paths either: rules with "match"
// apply to nothing there.
func (p *Policy) WithoutBodyOrPath(asker, hint string) Errors {
	return p.without(func(r *rule) bool { return r.readsBody && len(r.match) == 0 },
		fmt.Sprintf("the rule reads the bodies of requests, and %s does not bring them", asker), hint)
}

// WithoutTLS returns a problem for each rule that counts by tls_fingerprint, with a hint what to do
// about it, for a door that ends no TLS: such a rule would take all clients for one, or never
// apply.
func (p *Policy) WithoutTLS(hint string) Errors {
	return p.without(func(r *rule) bool { return r.key.Any((*parts.Part).NeedsTLS) },
		"the rule counts by tls_fingerprint, and the gateway ends no TLS", hint)
}

// without returns a problem for each rule that wants what a door does not have.
func (p *Policy) without(wants func(*rule) bool, message, hint string) (problems Errors) {
	for i := range p.rules {
		if r := &p.rules[i]; wants(r) {
			problems = append(problems, Problem{
				Path: fmt.Sprintf("rules[%d].key", r.index), Rule: r.name, Hint: hint, File: r.file, Line: r.line, Message: message,
			})
		}
	}
	return problems
}

// ByOutcome returns the names of the rules that go by the outcome of requests: see [Engine.Settle].
// Behind a door that never learns it everything counts, and costs what is estimated.
func (p *Policy) ByOutcome() (names []string) {
	for i := range p.rules {
		if r := &p.rules[i]; r.settles() {
			names = append(names, r.name)
		}
	}
	return names
}
