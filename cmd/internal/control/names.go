package control

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Name has the name of a subject in several forms. Unless the caller may see the key, pages show it only as Shown, with
// the start of Pseudonym if Shown is shortened.
type Name struct {
	// Text is the key: see [policy.Subject.Key]. It is empty for an override that may apply to several subjects, or
	// with a rule or a key that the engine rejects.
	Text string
	Rule string
	// Key has the values of the key parts other than constants. It is nil if a value was too long to be kept.
	Key       map[string]string
	Shown     string
	Pseudonym string
	Whole     bool // Shown is the whole key
}

func nameOf(s *policy.Subject) *Name {
	n := &Name{Text: s.Key(), Rule: s.Rule(), Shown: s.Shown(), Pseudonym: s.Pseudonym(), Whole: s.ShownWhole()}
	if len(s.Hashed()) == 0 {
		n.Key = s.Values()
		maps.DeleteFunc(n.Key, func(part, _ string) bool { return strings.HasPrefix(part, "const:") })
	}
	return n
}

// Name returns the name of a subject. The key is the Key of a [telemetry.Subject], or any other key that
// [policy.Engine.SubjectOf] accepts.
func (c *Control) Name(who Caller, key string) (*Name, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	s, err := c.engine.SubjectOf(key)
	if err != nil {
		return nil, Problemf(http.StatusNotFound, "%s", plain(err))
	}
	return nameOf(s), nil
}

// NameOf returns the name of the subject of a target.
func (c *Control) NameOf(who Caller, t Target) (*Name, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	s, err := c.find(who, t)
	if err != nil {
		return nil, err
	}
	return nameOf(s.Subject), nil
}

// OverrideName returns the name of the subject of an override.
func (c *Control) OverrideName(who Caller, rule string, key map[string]string) (*Name, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	if s, single := c.single(rule, key); single {
		return nameOf(s), nil
	}
	return &Name{Rule: rule, Key: key, Shown: c.shownKey(rule, key)}, nil
}

// single returns the subject of an override. It returns false if the override may apply to several subjects (to every
// value of a key part, or to a network), or if the engine rejects the rule or the key.
func (c *Control) single(rule string, key map[string]string) (*policy.Subject, bool) {
	if _, all := anyValue(key); all {
		return nil, false
	}
	s, err := c.engine.Subject(rule, key)
	return s, err == nil
}

// shownKey returns the key of an override as the rule's show_key shows it.
func (c *Control) shownKey(rule string, key map[string]string) string {
	if s, single := c.single(rule, key); single {
		return s.Shown()
	}
	r := c.ruleOf(rule)
	var all []string
	for _, part := range slices.Sorted(maps.Keys(key)) {
		value := key[part]
		switch {
		case value == "*":
		case r == nil || r.ShowKey == "hash":
			value = "…"
		case hides(r):
			value = policy.Shorten(value)
		}
		all = append(all, part+" "+value)
	}
	return strings.Join(all, ", ")
}

// View returns the present counts. They contain whole keys, whatever the role of the caller: see [Name] for how pages
// show them. Without telemetry, View fails.
func (c *Control) View(who Caller) (*telemetry.View, error) {
	return c.view(who, source.Viewer)
}
