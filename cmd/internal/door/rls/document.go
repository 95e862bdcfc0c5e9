package rls

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// maxRuleName is the maximum length of a rule's name.
const maxRuleName = 64

// document makes a policy with a rule for each limit. A rule applies to the descriptors for which find returns the
// rule's limit.
func (l *Limits) document(algorithm sluice.Algorithm) {
	l.limits = slices.DeleteFunc(l.limits, func(l *limit) bool { return l == nil || l.unlimited })
	nameRules(l.limits)
	l.Document.Rules = make([]policy.Rule, len(l.limits))
	for i, of := range l.limits {
		l.Document.Rules[i] = of.ruleBy(algorithm, map[string]string{limitAttribute: of.rule})
	}
	l.Where = l.where
}

// where returns the file and line of a path such as "rules[3].limit".
func (l *Limits) where(path string) (file string, line int) {
	var i int
	if n, _ := fmt.Sscanf(path, "rules[%d]", &i); n == 0 || i >= len(l.limits) {
		return "", 0
	}
	return l.limits[i].file, l.limits[i].line
}

// ruleBy returns the rule of a limit. The rule matches by the given attributes.
func (l *limit) ruleBy(algorithm sluice.Algorithm, attributes map[string]string) policy.Rule {
	r := policy.Rule{Name: l.rule, Attributes: attributes, Shadow: l.shadow || l.quota}
	if l.requests == 0 { // a limit of 0 denies everything
		r.Block = true
		return r
	}
	r.Key = l.key()
	r.Limit = fmt.Sprintf("%d/%s", l.requests, units[l.unit].period)
	if l.own.burst > 0 {
		r.Limit += fmt.Sprintf(" burst %d", l.own.burst)
	}
	if r.Algorithm = l.own.algorithm; r.Algorithm == "" {
		r.Algorithm = algorithm.String()
	}
	r.OnError = l.own.onError
	return r
}

// key returns the key parts by which the limit distinguishes requests.
func (l *limit) key() (parts []string) {
	for i := range l.steps {
		if i > 0 && l.steps[i].open() {
			parts = append(parts, "attr:"+l.attribute(i))
		}
	}
	return parts
}

// attribute returns the name of the attribute of a step.
func (l *limit) attribute(at int) string {
	before := 0
	for _, s := range l.steps[1:at] {
		if s.key == l.steps[at].key {
			before++
		}
	}
	return attributeName(l.steps[at].key, before)
}

// nameRules gives the rules of limits readable names, such as "edge.path_login.remote_address". Equal names, and
// shortened ones, get a part of a hash as a suffix, so that all names differ.
func nameRules(limits []*limit) {
	same := make(map[string]int)
	for _, l := range limits {
		l.rule = l.plainName()
		same[l.rule]++
	}
	for _, l := range limits {
		if same[l.rule] > 1 || len(l.rule) > maxRuleName {
			sum := sha256.Sum256([]byte(l.exactName()))
			suffix := "-" + hex.EncodeToString(sum[:6])
			l.rule = l.rule[:min(len(l.rule), maxRuleName-len(suffix))] + suffix
		}
	}
}

// plainName returns the path to a limit, written with the characters that a rule's name may contain.
func (l *limit) plainName() string {
	var b strings.Builder
	for i := range l.steps {
		s := &l.steps[i]
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.key)
		if s.value != "" {
			b.WriteString("_" + s.value)
		}
	}
	name := strings.Map(nameByte, b.String())
	if strings.IndexByte(".-_", name[0]) >= 0 {
		name = "d" + name // a name starts with a letter or a digit
	}
	return name
}

// nameByte returns c in lower case, or a hyphen if a rule's name cannot contain c.
func nameByte(c rune) rune {
	switch {
	case c >= 'A' && c <= 'Z':
		return c - 'A' + 'a'
	case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		return c
	}
	return '-'
}

// exactName returns the path to a limit as a text that no other limit has.
func (l *limit) exactName() string {
	var b []byte
	for _, s := range l.steps {
		b = append(b, '/')
		b = sluice.AppendKeyPart(b, s.key)
		b = append(b, '/')
		b = sluice.AppendKeyPart(b, s.value)
	}
	return string(b)
}

// Made reports whether a policy was made from these limits.
func (l *Limits) Made(doc *policy.Document) bool {
	own := l.Document.Rules
	return doc != nil && len(doc.Rules) == len(own) && (len(own) == 0 || &doc.Rules[0] == &own[0])
}
