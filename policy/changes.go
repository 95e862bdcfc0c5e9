package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// Change is a setting in which two policies differ: see [Policy.Changes].
type Change struct {
	Rule  string // the name of the rule; empty for a setting of the whole document
	Field string // the name of the setting, such as "limit"; empty if the whole rule is new or gone
	// Was and Is are the old and the new value if they fit in a line of text. A value that is not set is empty.
	Was, Is string
	New     bool // the rule is new
	Gone    bool // the rule is gone
}

// String returns the change in words: "login: limit 8/minute, was 6/minute".
func (c Change) String() string {
	switch {
	case c.New:
		return c.Rule + " is new"
	case c.Gone:
		return c.Rule + " is gone"
	}
	out := c.Field
	if c.Rule != "" {
		out = c.Rule + ": " + out
	}
	switch {
	case c.Was == "" && c.Is == "":
		return out + " changed"
	case c.Is == "":
		return out + " removed, was " + c.Was
	case c.Was == "":
		return out + " " + c.Is
	}
	return out + " " + c.Is + ", was " + c.Was
}

// Changes returns the settings in which p differs from old. Rules are matched by name. The order is: settings of
// the document, settings of the rules of p in their order, rules that are gone, and last a Change if the rules that
// both have are in a different order. Overrides and subjects are left out.
func (p *Policy) Changes(old *Policy) (all []Change) {
	was, is := old.written, p.written
	before := make(map[string]*Rule, len(was.Rules))
	for i := range was.Rules {
		before[was.Rules[i].Name] = &was.Rules[i]
	}
	add := func(rule string, was, is reflect.Value, except ...string) {
		for i := range is.NumField() {
			field, _, _ := strings.Cut(is.Type().Field(i).Tag.Get("json"), ",")
			if field == "-" || slices.Contains(except, field) {
				continue
			}
			a, b := was.Field(i).Interface(), is.Field(i).Interface()
			if !reflect.DeepEqual(a, b) {
				all = append(all, Change{Rule: rule, Field: field, Was: lineOf(a), Is: lineOf(b)})
			}
		}
	}
	add("", reflect.ValueOf(was), reflect.ValueOf(is), "rules", "overrides", "subjects")
	var orderWas, orderIs []string // names of the rules that both have
	for i := range is.Rules {
		r := &is.Rules[i]
		o := before[r.Name]
		if o == nil {
			all = append(all, Change{Rule: r.Name, New: true})
			continue
		}
		orderIs = append(orderIs, r.Name)
		add(r.Name, reflect.ValueOf(*o), reflect.ValueOf(*r), "name")
	}
	for i := range was.Rules {
		if _, stays := p.byName[was.Rules[i].Name]; stays {
			orderWas = append(orderWas, was.Rules[i].Name)
		} else {
			all = append(all, Change{Rule: was.Rules[i].Name, Gone: true})
		}
	}
	if !slices.Equal(orderWas, orderIs) {
		all = append(all, Change{Field: "order of the rules"})
	}
	return all
}

// lineOf returns the value of a setting as a line of text. It returns "" for a zero value and for values that do not
// fit in a line.
func lineOf(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []string:
		return strings.Join(v, ", ")
	case bool:
		if v {
			return "true"
		}
	case InFlight:
		return v.String()
	case int, int64:
		if text := fmt.Sprint(v); text != "0" {
			return text
		}
	}
	return ""
}

// Restart is a limit that starts to count from zero, because its kind or the key of its rule has changed. A limit does
// not restart if only its burst changes or, for a window or a log, the number of units that it allows. The exception is
// a sliding_window_log that grows beyond 1,024 units or shrinks to at most 1,024.
type Restart struct {
	Rule string
	From string // "rule", "tier:pro" or "override", as in a [Result]
	// Was and Is are the old and the new limits, such as "100/minute burst 20 (token_bucket)", with ", " between
	// several. They are the same if only the rule's key has changed.
	Was, Is string
}

// Restarts returns the limits that start from zero when p replaces old, in the order of the rules of p. Rules are
// matched by name; rules that only one policy has are left out.
func (p *Policy) Restarts(old *Policy) (all []Restart) {
	for i := range p.rules {
		r := &p.rules[i]
		j, known := old.byName[r.name]
		if !known || !r.charges() || !old.rules[j].charges() {
			continue
		}
		all = append(all, p.restarts(r, old, &old.rules[j])...)
	}
	return all
}

func (p *Policy) restarts(r *rule, before *Policy, old *rule) (all []Restart) {
	moved := !sameKey(r, old)
	compare := func(from string, was, is []limit) {
		if !moved {
			was, is = without(was, is), without(is, was)
		}
		if len(was) > 0 && len(is) > 0 {
			all = append(all, Restart{r.name, from, limitTexts(was), limitTexts(is)})
		}
	}
	compare(r.own.from, old.own.limits, r.own.limits)
	for _, is := range r.tiers {
		if was := old.tiers.limits(is.tier); was != nil {
			compare(was.from, was.limits, is.limits)
		}
	}
	if has, had := p.overrides.forRule(r), before.overrides.forRule(old); has != nil && had != nil {
		has.Both(had, func(was, is *resolved) { compare(overridden, was.limits, is.limits) })
	}
	return all
}

// sameKey reports whether the keys of both rules have the same parts, in the same order, and the same hash tag.
func sameKey(a, b *rule) bool {
	return slices.Equal(a.together, b.together) &&
		slices.Equal(a.key.Names(), b.key.Names())
}

func limitText(p *sluice.Plan) string {
	if p.Kernel == kernel.InFlight {
		return p.String()
	}
	return p.String() + " (" + p.AlgorithmName() + ")"
}

// Fingerprint returns 16 characters that identify the document of the policy, without its overrides and subjects.
// They are the same in every process. The fingerprint is empty for a policy that was not compiled from a document.
func (p *Policy) Fingerprint() string { return p.fingerprint }

// identify sets the fingerprint of a policy, and the names of its rules and tiers.
func (p *Policy) identify(doc Document) {
	p.names = make([]string, len(p.rules))
	for i := range p.rules {
		p.names[i] = p.rules[i].name
	}
	doc.Overrides, doc.Subjects = nil, nil
	p.written = doc
	p.knownTiers = p.tierNames()
	delete(p.knownTiers, "")
	sum := sha256.New()
	_ = json.NewEncoder(sum).Encode(doc) // cannot fail: a document has only text and numbers, and a hash accepts all writes
	for _, name := range sortedKeys(doc.Lists) {
		if doc.Lists[name].File != "" { // the document has only the file's name
			_ = json.NewEncoder(sum).Encode(doc.Lists[name].Networks)
		}
	}
	if doc.Prices.File != "" {
		_ = json.NewEncoder(sum).Encode(doc.Prices.Models)
	}
	p.fingerprint = hex.EncodeToString(sum.Sum(nil)[:8])
}
