package console

import (
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// subjectRef is a subject that a request names, by an ID of telemetry or by a rule and its key.
type subjectRef struct {
	ID   string            // empty: it is named by its key
	Rule *policy.Rule      // not to be changed
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

// target names the subject to control, with the reason that a form gives.
func (r *subjectRef) target(f url.Values) control.Target {
	if r.Key == nil {
		return control.Target{ID: r.ID, Reason: f.Get("reason")}
	}
	return control.Target{Rule: r.Rule.Name, Key: r.Key, Reason: f.Get("reason")}
}

// subjectOf returns the subject that the fields of a request name.
func (c *call) subjectOf(p *control.InForce, q url.Values) (*subjectRef, error) {
	if id := q.Get("id"); id != "" {
		return c.subjectByID(p, id)
	}
	name := q.Get("rule")
	rule, err := ruleIn(p, name)
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
		return nil, control.Problemf(http.StatusUnprocessableEntity, "%s.", sentence(err))
	}
	ref.Text = subject.Key()
	ref.Shown = withPseudonym(subject.Shown(), subject.Pseudonym())
	return ref, nil
}

func (c *call) subjectByID(p *control.InForce, id string) (*subjectRef, error) {
	key, found := c.s.find(id)
	if !found {
		return nil, control.Problemf(http.StatusNotFound, "No subject has this ID. IDs are of those seen in the last day: look in the lists of its rule, or find it by its key.")
	}
	name, _, _ := strings.Cut(key, "/")
	rule, err := ruleIn(p, name)
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
	if anyValue(key) {
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
func (c *call) ownOverride(ref *subjectRef) (*control.Item, *policy.Override, error) {
	if ref.Key == nil {
		return nil, nil, nil
	}
	page, err := c.s.Control.List(c.caller, control.Overrides, control.Query{Rule: ref.Rule.Name, Key: ref.Key, Limit: maxItems})
	if err != nil {
		return nil, nil, err
	}
	for i := range page.Items {
		own := &page.Items[i]
		if o := own.Document.(*policy.Override); own.Source == source.FromDatabase && len(o.Key) == len(ref.Key) {
			return own, o, nil
		}
	}
	return nil, nil, nil
}
