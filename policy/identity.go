package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// RuleNames returns the names of the rules in the order of the document. It is the same list for
// policies that differ in their overrides and subjects only. Do not change it.
func (p *Policy) RuleNames() []string { return p.names }

// Fingerprint tells policies apart by all but their overrides and subjects: 16 characters, the same
// in every process for the same document, and empty for a policy without one.
func (p *Policy) Fingerprint() string { return p.fingerprint }

// identify gives a policy its fingerprint and the list of its rules.
func (p *Policy) identify(doc Document) {
	p.names = make([]string, len(p.rules))
	for i := range p.rules {
		p.names[i] = p.rules[i].name
	}
	doc.Overrides, doc.Subjects = nil, nil
	p.written = doc
	p.knownTiers = p.tierNames()
	delete(p.knownTiers, "")
	sum := sha256.New()
	_ = json.NewEncoder(sum).Encode(doc) // a document is plain text and numbers, and a hash takes all
	for _, name := range sortedKeys(doc.Lists) {
		if doc.Lists[name].File != "" { // of which a document says no more than the name
			_ = json.NewEncoder(sum).Encode(doc.Lists[name].Networks)
		}
	}
	p.fingerprint = hex.EncodeToString(sum.Sum(nil)[:8])
}
