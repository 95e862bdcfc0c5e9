package control

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// veil removes keys from results for callers that may see keys only in the form of the rule's show_key. A nil veil
// removes nothing.
type veil struct {
	control *Control
	rules   map[string]bool // whether keys of the rule are hidden
	parts   map[string]bool // whether values of the part are hidden
}

// veilFor returns the veil for a viewer, and nil for other callers.
func (c *Control) veilFor(who Caller) *veil {
	if who.Role.May(source.Operator) {
		return nil
	}
	v := &veil{c, map[string]bool{}, map[string]bool{}}
	rules := c.policy.now().document.Rules
	for i := range rules {
		hidden := hides(&rules[i])
		v.rules[rules[i].Name] = hidden
		for _, part := range rules[i].Key {
			v.parts[part] = v.parts[part] || hidden
		}
	}
	return v
}

// hides reports whether a rule shortens or hashes keys that are shown.
func hides(r *policy.Rule) bool {
	return r.ShowKey != "" && r.ShowKey != "whole" || r.ShowKey == "" && slices.ContainsFunc(r.Key, policy.SecretPart)
}

// hides reports whether keys of a rule are hidden. Keys of unknown rules are hidden.
func (v *veil) hides(rule string) bool {
	hidden, known := v.rules[rule]
	return hidden || !known
}

// override returns an override without its key, and the text to show instead. If the caller may see the key, it
// returns the override unchanged.
func (v *veil) override(o *policy.Override) (*policy.Override, string) {
	if v == nil || len(o.Key) == 0 || !v.hides(o.Rule) {
		return o, ""
	}
	without := *o
	without.Key = nil
	return &without, v.control.shownKey(o.Rule, o.Key)
}

// state returns the override of a subject without its key, or unchanged if the caller may see the key.
func (v *veil) state(o *OverrideState) *OverrideState {
	if v == nil || o == nil {
		return o
	}
	without := *o
	without.Document, _ = v.override(o.Document)
	return &without
}

// key returns a key in the store in the form that the caller may see.
func (v *veil) key(key string) string {
	if v == nil || key == "" {
		return key
	}
	return v.control.engine.Policy().ShownKey(key)
}

// subjects reports whether the subjects of tiers are hidden.
func (v *veil) subjects() bool {
	if v == nil {
		return false
	}
	part := v.control.policy.now().document.Tiers.Subject
	return policy.SecretPart(part) || v.parts[part]
}

// item returns an item in the form that the caller may see.
func (v *veil) item(i *item) Item {
	l := listedOf(i)
	switch d := i.Document.(type) {
	case *policy.Override:
		l.Document, l.Shown = v.override(d)
	case *policy.TierSubject:
		if v.subjects() {
			short := *d
			short.Subject = policy.Shorten(d.Subject)
			l.ID, l.Document = short.Subject, &short
		}
	}
	return l
}

// cursor returns the cursor of the page that follows an item. It contains the name of the item or, if the name is
// hidden, the item's index.
func (v *veil) cursor(kind Kind, i *item, index int) string {
	if kind == Subjects && v.subjects() {
		return cursorBehind(strconv.Itoa(index))
	}
	return cursorBehind(i.ID)
}

// entry returns an entry of the audit log in the form that the caller may see.
func (v *veil) entry(e source.Entry) source.Entry {
	if v == nil {
		return e
	}
	if e.Kind == string(Subjects) && (e.Action == "create" || e.Action == "replace" || e.Action == "delete") {
		if v.subjects() {
			e.Target, e.Before, e.After = policy.Shorten(e.Target), hidden(e.Before, v.tierSubject), hidden(e.After, v.tierSubject)
		}
		return e
	}
	document := func(data json.RawMessage) json.RawMessage { return v.document(data, e.Target) }
	before, after := hidden(e.Before, document), hidden(e.After, document)
	if before != e.Before || after != e.After {
		e.Target, _, _ = strings.Cut(e.Target, " {") // the target of an override is the rule, followed by the key
	}
	e.Before, e.After = before, after
	return e
}

// hidden applies the function hide to a row.
func hidden(r source.Row, hide func(json.RawMessage) json.RawMessage) source.Row {
	return source.Row(hide(json.RawMessage(r)))
}

// document returns a document without its key if the key is hidden.
func (v *veil) document(data json.RawMessage, rule string) json.RawMessage {
	var fields map[string]json.RawMessage
	var key map[string]string
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["key"], &key) != nil {
		return data // the document has no key
	}
	_ = json.Unmarshal(fields["rule"], &rule) // a document without a rule is in an audit entry whose target is the rule
	if len(key) == 0 || !v.hides(rule) {
		return data
	}
	delete(fields, "key")
	fields["shown"] = JSON(v.control.shownKey(rule, key))
	return JSON(fields)
}

func (v *veil) tierSubject(data json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	var name string
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["subject"], &name) != nil {
		return data
	}
	fields["subject"] = JSON(policy.Shorten(name))
	return JSON(fields)
}
