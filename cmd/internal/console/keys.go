package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
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

// shownSubject is a subject of a view for people, by its key and what its rule shows of that.
func (c *call) shownSubject(s *telemetry.Subject) string {
	if !strings.Contains(s.Shown, "…") {
		return s.Shown
	}
	name, err := c.s.Control.Name(c.caller, s.Key)
	if err != nil {
		return s.Shown
	}
	return withPseudonym(s.Shown, name.Pseudonym)
}

// shownOverride is the key of an override for people.
func (c *call) shownOverride(rule string, key map[string]string) string {
	name, err := c.s.Control.OverrideName(c.caller, rule, key)
	if err != nil {
		return ""
	}
	return withPseudonym(name.Shown, name.Pseudonym)
}

// isPseudonym reports whether a text may be what withPseudonym shows, and returns it.
func isPseudonym(text string) (string, bool) {
	text = strings.TrimPrefix(strings.ToLower(text), "#")
	return text, len(text) >= pseudonymShown && len(text) <= 12 && strings.Trim(text, "0123456789abcdef") == ""
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
