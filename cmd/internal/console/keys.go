package console

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

// pseudonymShown is how many digits of a pseudonym are shown.
const pseudonymShown = 6

// withPseudonym is a shown key, with a pseudonym where it was shortened: many keys look alike then.
func withPseudonym(shown, pseudonym string) string {
	if !strings.Contains(shown, "…") || len(pseudonym) < pseudonymShown {
		return shown
	}
	return shown + " #" + pseudonym[:pseudonymShown]
}

// shownSubject is a subject for people, by its key and what its rule shows of that.
func (s *server) shownSubject(key, shown string) string {
	if !strings.Contains(shown, "…") {
		return shown
	}
	subject, err := s.Engine.SubjectOf(key)
	if err != nil {
		return shown
	}
	return withPseudonym(shown, subject.Pseudonym())
}

// shownOverride is the key of an override for people.
func (s *server) shownOverride(rule string, key map[string]string) string {
	shown := s.shownParts(rule, key)
	if subject, err := s.Engine.Subject(rule, key); err == nil {
		return withPseudonym(shown, subject.Pseudonym())
	}
	return shown
}

// shownItem is the key of an override in a list for people.
func (s *server) shownItem(i *control.Item) string {
	if i.Shown != "" {
		return withPseudonym(i.Shown, i.Pseudonym)
	}
	o := i.Document.(*policy.Override)
	return withPseudonym(s.shownParts(o.Rule, o.Key), i.Pseudonym)
}

// isPseudonym reports whether a text may be what withPseudonym shows, and returns it.
func isPseudonym(text string) (string, bool) {
	text = strings.TrimPrefix(strings.ToLower(text), "#")
	return text, len(text) >= pseudonymShown && len(text) <= 12 && strings.Trim(text, "0123456789abcdef") == ""
}

// shownParts is a key for people, shortened or hashed as its rule says. An override that stands for
// many has no such key: of it, what is secret is shortened, or all if its rule shows no key whole.
func (s *server) shownParts(rule string, key map[string]string) string {
	if subject, err := s.Engine.Subject(rule, key); err == nil && !anyValue(key) {
		return subject.Shown()
	}
	whole := s.Engine.Policy().ShowsWhole(rule)
	var all []string
	for _, part := range slices.Sorted(maps.Keys(key)) {
		v := key[part]
		if v != "*" && (policy.SecretPart(part) || !whole) {
			v = policy.Shorten(v)
		}
		all = append(all, part+" "+v)
	}
	return strings.Join(all, ", ")
}

// anyValue reports whether the key of an override stands for several subjects.
func anyValue(key map[string]string) bool {
	return slices.Contains(slices.Collect(maps.Values(key)), "*")
}

// subjectQuery names a subject in a URL.
func subjectQuery(rule string, key map[string]string) url.Values {
	q := url.Values{"rule": {rule}}
	for part, v := range key {
		q.Set("key."+part, v)
	}
	return q
}

// countedParts are the parts of a rule's key that a subject has to name.
func countedParts(r *policy.Rule) (parts []string) {
	for _, p := range slices.Concat(r.Key, r.Share.By) {
		if !strings.HasPrefix(p, "const:") {
			parts = append(parts, p)
		}
	}
	return parts
}
