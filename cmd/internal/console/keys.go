package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// pseudonymShown is the number of digits that are shown of a pseudonym.
const pseudonymShown = 6

// withPseudonym returns a key for display. It appends the pseudonym if the key was shortened, because shortened
// keys may look alike.
func withPseudonym(shown, pseudonym string) string {
	if !strings.Contains(shown, "…") || len(pseudonym) < pseudonymShown {
		return shown
	}
	return shown + " #" + pseudonym[:pseudonymShown]
}

// shownSubject returns the key of a subject for display, shortened if its rule hides keys.
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

// shownOverride returns the key of an override for display.
func (c *call) shownOverride(rule string, key map[string]string) string {
	name, err := c.s.Control.OverrideName(c.caller, rule, key)
	if err != nil {
		return ""
	}
	return withPseudonym(name.Shown, name.Pseudonym)
}

// isPseudonym reports whether a text can be the start of a pseudonym, with or without the "#" of withPseudonym. It
// returns the text without "#", in lower case.
func isPseudonym(text string) (string, bool) {
	text = strings.TrimPrefix(strings.ToLower(text), "#")
	return text, len(text) >= pseudonymShown && len(text) <= 12 && strings.Trim(text, "0123456789abcdef") == ""
}

// subjectQuery returns the URL query that names a subject.
func subjectQuery(rule string, key map[string]string) url.Values {
	q := url.Values{"rule": {rule}}
	for part, v := range key {
		q.Set("key."+part, v)
	}
	return q
}

// countedParts returns the parts of a rule's key for which a subject has values.
func countedParts(r *policy.Rule) (parts []string) {
	for _, p := range slices.Concat(r.Key, r.Share.By) {
		if !strings.HasPrefix(p, "const:") {
			parts = append(parts, p)
		}
	}
	return parts
}
