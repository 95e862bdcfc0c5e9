package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is a setting in which two policies differ: see [Policy.Changes].
type Change struct {
	Rule  string // its name; empty for a setting of the whole document
	Field string // as it is written, such as "limit"; empty if all of the rule is new or gone
	// Was and Is are the values, as far as they are a line of text: empty if nothing was or is written.
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

// Changes returns in which settings p differs from old, rules by their names: first those of the document,
// then of the rules of p in their order, then the rules that are gone, and last whether the order of the rules
// that both have is another. Overrides and subjects are left out.
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
	var orderWas, orderIs []string // of the rules that both have
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

// lineOf returns a value as a line of text, if it is one.
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
	case int, int64:
		if text := fmt.Sprint(v); text != "0" {
			return text
		}
	}
	return ""
}
