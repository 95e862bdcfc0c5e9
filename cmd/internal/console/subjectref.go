package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// subjectRef is a subject that a request names, by its ID in telemetry or by its rule and key.
type subjectRef struct {
	*control.Name
	ID   string       // "" if the request names the subject by its key
	Rule *policy.Rule // must not be changed
}

// Query returns the URL query that names the subject. If the request named the subject by its ID, the query has the
// ID and no key.
func (r *subjectRef) Query() string { return r.values().Encode() }

// Act returns the URL of an act on the subject.
func (r *subjectRef) Act(name string) string { return "/act/" + name + "?" + r.Query() }

// KeyPage returns the URL of the page with the whole key.
func (r *subjectRef) KeyPage() string { return "/key?" + r.Query() }

func (r *subjectRef) values() url.Values {
	if r.ID != "" {
		return url.Values{"id": {r.ID}}
	}
	return subjectQuery(r.Rule.Name, r.Key)
}

// Page returns the URL of the subject's page.
func (r *subjectRef) Page() string {
	if r.ID != "" {
		return subjectPage(r.ID)
	}
	return "/subjects?" + r.Query()
}

// subjectPage returns the URL of the page of the subject with an ID.
func subjectPage(id string) string { return "/subjects/" + url.PathEscape(id) }

// Hidden returns the hidden form fields that name the subject.
func (r *subjectRef) Hidden() map[string]string {
	all := map[string]string{}
	for name, v := range r.values() {
		all[name] = v[0]
	}
	return all
}

// target returns the target of a change for package control, with the reason from a form.
func (r *subjectRef) target(f url.Values) control.Target {
	if r.Key == nil {
		return control.Target{ID: r.ID, Reason: f.Get("reason")}
	}
	return control.Target{Rule: r.Rule.Name, Key: r.Key, Reason: f.Get("reason")}
}

// subjectOf returns the subject that a query or a form names.
func (c *call) subjectOf(q url.Values) (*subjectRef, error) {
	if id := q.Get("id"); id != "" {
		return c.subjectByID(id)
	}
	rule, err := c.rule(q.Get("rule"))
	if err != nil {
		return nil, err
	}
	key := map[string]string{}
	for field, v := range q {
		if part, isKey := strings.CutPrefix(field, "key."); isKey {
			key[part] = v[0]
		}
	}
	name, err := c.s.Control.NameOf(c.caller, control.Target{Rule: rule.Name, Key: key})
	if err != nil {
		return nil, err
	}
	name.Key, name.Shown = key, withPseudonym(name.Shown, name.Pseudonym)
	return &subjectRef{name, "", rule}, nil
}

func (c *call) subjectByID(id string) (*subjectRef, error) {
	name, err := c.s.Control.NameOf(c.caller, control.Target{ID: id})
	if err != nil {
		return nil, control.Problemf(http.StatusNotFound, "No subject seen in the last day has this ID. Find it in the lists of its rule, or by its key.")
	}
	name.Shown = withPseudonym(name.Shown, name.Pseudonym)
	rule, err := c.rule(name.Rule)
	return &subjectRef{name, id, rule}, err
}

// link returns the telemetry of a subject, or nil, and the URL of its page. If the only URL would contain a key
// that the caller must not see, link returns "".
func (c *call) link(v *telemetry.View, rule string, key map[string]string) (seen *telemetry.Subject, link string) {
	name, err := c.s.Control.OverrideName(c.caller, rule, key)
	if err != nil || name.Text == "" {
		return nil, ""
	}
	if seen = seenSubject(v, rule, name.Text); seen != nil && seen.ID != "" {
		return seen, subjectPage(seen.ID)
	}
	if c.caller.Role.May(source.Operator) || name.Whole {
		return seen, "/subjects?" + subjectQuery(rule, key).Encode()
	}
	return seen, ""
}

// seenSubject returns the telemetry of a subject from any list of its rule, or nil.
func seenSubject(v *telemetry.View, rule, key string) *telemetry.Subject {
	r := v.Rule(rule)
	if r == nil {
		return nil
	}
	for w := range slices.Backward(r.Refusals[:]) {
		for _, top := range []*telemetry.Top{&r.Refusals[w], &r.Traffic[w]} {
			if s := find(top.Items, key); s != nil {
				return s
			}
		}
	}
	if r.Budget != nil {
		return find(r.Budget.Spenders[telemetry.Day].Items, key)
	}
	return nil
}

// find returns the subject with a key in a list, or nil.
func find(list []telemetry.Subject, key string) *telemetry.Subject {
	for i := range list {
		if list[i].Key == key {
			return &list[i]
		}
	}
	return nil
}

// ownOverride returns the override in the database that applies only to this subject, or nil.
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
