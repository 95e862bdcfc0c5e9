package console

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// subjectRef is a subject that a request names, by an ID of telemetry or by a rule and its key.
type subjectRef struct {
	ID   string // empty: it is named by its key
	Rule *ruleInForce
	Key  map[string]string // nil: a value was too long to be kept, so that only a hash of it is known
	// Text is what the store counts under.
	Text  string
	Shown string // for people
}

// Query names the subject in a URL, by the ID if it was asked for by that: it says no key.
func (r *subjectRef) Query() string { return r.values().Encode() }

// Act is where an act on the subject is.
func (r *subjectRef) Act(name string) string { return "/act/" + name + "?" + r.Query() }

// KeyPage is where its whole key is shown.
func (r *subjectRef) KeyPage() string { return "/key?" + r.Query() }

func (r *subjectRef) values() url.Values {
	if r.ID != "" {
		return url.Values{"id": {r.ID}}
	}
	return subjectQuery(r.Rule.Name, r.Key)
}

// Page is where the subject is shown.
func (r *subjectRef) Page() string {
	if r.ID != "" {
		return "/subjects/" + url.PathEscape(r.ID)
	}
	return "/subjects?" + r.Query()
}

// Hidden are the fields of a form that name the subject.
func (r *subjectRef) Hidden() map[string]string {
	all := map[string]string{}
	for name, v := range r.values() {
		all[name] = v[0]
	}
	return all
}

// target names the subject to the admin API.
func (r *subjectRef) target() map[string]any {
	if r.Key == nil {
		return map[string]any{"id": r.ID}
	}
	return map[string]any{"rule": r.Rule.Name, "key": r.Key}
}

// subjectOf returns the subject that the fields of a request name.
func (c *call) subjectOf(p *inForce, q url.Values) (*subjectRef, error) {
	if id := q.Get("id"); id != "" {
		return c.subjectByID(p, id)
	}
	name := q.Get("rule")
	rule, err := p.rule(name)
	if err != nil {
		return nil, err
	}
	ref := &subjectRef{Rule: rule, Key: map[string]string{}}
	for field, v := range q {
		if part, isKey := strings.CutPrefix(field, "key."); isKey {
			ref.Key[part] = v[0]
		}
	}
	subject, err := c.s.Engine.Subject(name, ref.Key)
	if err != nil {
		return nil, problemf(http.StatusUnprocessableEntity, "%s.", sentence(err))
	}
	ref.Text = subject.Key()
	ref.Shown = withPseudonym(subject.Shown(), subject.Pseudonym())
	return ref, nil
}

func (c *call) subjectByID(p *inForce, id string) (*subjectRef, error) {
	key, found := c.s.Find(id)
	if !found {
		return nil, problemf(http.StatusNotFound, "No subject has this ID. IDs are of those seen in the last day: look in the lists of its rule, or find it by its key.")
	}
	name, _, _ := strings.Cut(key, "/")
	rule, err := p.rule(name)
	if err != nil {
		return nil, err
	}
	ref := &subjectRef{ID: id, Rule: rule, Text: key, Shown: c.s.Engine.Policy().ShownKey(key)}
	if subject, err := c.s.Engine.SubjectOf(key); err == nil {
		if ref.Text, ref.Shown = subject.Key(), withPseudonym(subject.Shown(), subject.Pseudonym()); len(subject.Hashed()) == 0 {
			ref.Key = subject.Values()
			maps.DeleteFunc(ref.Key, func(part, _ string) bool { return strings.HasPrefix(part, "const:") })
		}
	}
	return ref, nil
}

// sentence is an error as the beginning of a sentence, without the name of the package.
func sentence(err error) string {
	text := strings.TrimPrefix(err.Error(), "policy: ")
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// subjectURL leads to a subject without saying a key that the caller is not to see; it is empty where
// there is no such way.
func (c *call) subjectURL(v *telemetry.View, rule string, key map[string]string) string {
	if slices.Contains(mapValues(key), "*") {
		return ""
	}
	subject, err := c.s.Engine.Subject(rule, key)
	if err != nil {
		return ""
	}
	if seen := seenSubject(v, rule, subject.Key()); seen != nil && seen.ID != "" {
		return "/subjects/" + url.PathEscape(seen.ID)
	}
	if c.caller.Role.May(source.Operator) || c.s.whole(subject.Key()) {
		return "/subjects?" + subjectQuery(rule, key).Encode()
	}
	return ""
}

// whole reports whether everybody may see all of a key.
func (s *server) whole(key string) bool {
	subject, err := s.Engine.SubjectOf(key)
	return err == nil && subject.ShownWhole()
}

// seenSubject returns what telemetry knows of a subject, in any of its lists.
func seenSubject(v *telemetry.View, rule, key string) *telemetry.Subject {
	r := v.Rule(rule)
	if r == nil {
		return nil
	}
	for w := telemetry.Window(telemetry.Windows - 1); ; w-- {
		for _, top := range []*telemetry.Top{&r.Refusals[w], &r.Traffic[w]} {
			for i := range top.Items {
				if top.Items[i].Key == key {
					return &top.Items[i]
				}
			}
		}
		if w == 0 {
			return nil
		}
	}
}

// ownOverride returns the override of the database that is of this subject alone, if it has one.
func (c *call) ownOverride(ref *subjectRef) (*item, *policy.Override, error) {
	if ref.Key == nil {
		return nil, nil, nil
	}
	all, _, err := c.list("/v1/overrides", subjectQuery(ref.Rule.Name, ref.Key))
	if err != nil {
		return nil, nil, err
	}
	for i := range all {
		o, err := decoded[policy.Override](all[i].Document)
		if err != nil {
			return nil, nil, err
		}
		if all[i].Source == "database" && len(o.Key) == len(ref.Key) {
			return &all[i], o, nil
		}
	}
	return nil, nil, nil
}
