package control

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// veil takes the keys out of answers to callers who get no more of a key than what people are to see
// of it. A nil veil takes nothing.
type veil struct {
	control *Control
	rules   map[string]bool // whether keys of the rule are hidden
	parts   map[string]bool // whether values of the part are
}

// veilFor returns the veil for a caller: viewers have one.
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

// hides reports whether people are not to see all of a rule's keys.
func hides(r *policy.Rule) bool {
	return r.ShowKey != "" && r.ShowKey != "whole" || r.ShowKey == "" && slices.ContainsFunc(r.Key, policy.SecretPart)
}

// hides reports whether keys of a rule are hidden. What is not in force shows nothing.
func (v *veil) hides(rule string) bool {
	hidden, known := v.rules[rule]
	return hidden || !known
}

// many reports whether a value of an override's key may stand for several.
func many(value string) bool { return value == "*" || strings.Contains(value, "/") }

// shown is what people are to see of the key of an override.
func (v *veil) shown(rule string, key map[string]string) string {
	if !slices.ContainsFunc(slices.Collect(maps.Values(key)), many) {
		if s, err := v.control.engine.Subject(rule, key); err == nil {
			return s.Shown()
		}
	}
	var all []string
	for _, part := range slices.Sorted(maps.Keys(key)) {
		value := key[part]
		if value != "*" {
			value = "…"
		}
		all = append(all, part+" "+value)
	}
	return strings.Join(all, ", ")
}

// override returns an override without its key, and what is shown in place of that; or as it is.
func (v *veil) override(o *policy.Override) (*policy.Override, string) {
	if v == nil || len(o.Key) == 0 || !v.hides(o.Rule) {
		return o, ""
	}
	without := *o
	without.Key = nil
	return &without, v.shown(o.Rule, o.Key)
}

// subjects reports whether those who are in tiers are named by something hidden.
func (v *veil) subjects() bool {
	if v == nil {
		return false
	}
	part := v.control.policy.now().document.Tiers.Subject
	return policy.SecretPart(part) || v.parts[part]
}

// item returns an item of a list as the caller may see it.
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

// cursor says that a page begins behind an item, by its place where its name is hidden.
func (v *veil) cursor(kind Kind, i *item, place int) string {
	if kind == Subjects && v.subjects() {
		return cursorBehind(strconv.Itoa(place))
	}
	return cursorBehind(i.ID)
}

// entry returns an entry of the audit log as the caller may see it.
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
		e.Target, _, _ = strings.Cut(e.Target, " {") // behind the rule, an override's has the key, too
	}
	e.Before, e.After = before, after
	return e
}

// hidden returns a row as hide leaves it.
func hidden(r source.Row, hide func(json.RawMessage) json.RawMessage) source.Row {
	return source.Row(hide(json.RawMessage(r)))
}

// document returns a document without the key of a subject, if it has one that is hidden.
func (v *veil) document(data json.RawMessage, rule string) json.RawMessage {
	var fields map[string]json.RawMessage
	var key map[string]string
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["key"], &key) != nil {
		return data // it is of another kind
	}
	_ = json.Unmarshal(fields["rule"], &rule) // acts on subjects have it as their target
	if len(key) == 0 || !v.hides(rule) {
		return data
	}
	delete(fields, "key")
	fields["shown"] = JSON(v.shown(rule, key))
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
