package recent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// scope is the part of a rule's subjects that a change affects.
type scope uint8

const (
	unchanged   scope = iota
	someChanged       // only the subjects for which overrides or tiers set other limits than before
	allChanged
)

// changedRules returns the rules that a change affects directly, by name. For other rules, the real decisions
// already reflect the state of the counters.
func changedRules(before, after *policy.Document) map[string]scope {
	was, is := rulesOf(before), rulesOf(after)
	names := map[string]scope{}
	all := slices.Concat(before.Rules, after.Rules)
	for _, r := range all {
		switch a, b := was[r.Name], is[r.Name]; {
		case a.rule != b.rule:
			names[r.Name] = allChanged
		case a.subjects != b.subjects:
			names[r.Name] = someChanged
		}
	}
	exempts := func(r policy.Rule) bool { return r.Exempt && names[r.Name] != unchanged }
	if settings(before) != settings(after) || order(before, is) != order(after, was) ||
		slices.ContainsFunc(all, exempts) {
		for _, r := range all {
			names[r.Name] = allChanged
		}
	}
	return names
}

// ruleText has everything in a document that determines the decisions of a rule, as JSON.
type ruleText struct{ rule, subjects string }

func rulesOf(doc *policy.Document) map[string]ruleText {
	all := map[string]ruleText{}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		parts := []any{}
		for _, o := range doc.Overrides {
			if o.Rule == r.Name {
				parts = append(parts, o)
			}
		}
		if goesByTier(r) {
			parts = append(parts, doc.Tiers, doc.Subjects)
		}
		all[r.Name] = ruleText{encode(r), encode(parts)}
	}
	return all
}

// settings returns, as JSON, the part of a document that determines the decisions of all rules.
func settings(doc *policy.Document) string {
	d := source.Inlined(*doc)
	d.Rules, d.Overrides, d.Subjects, d.Tiers = nil, nil, nil, policy.Tiers{}
	d.Answers, d.Fields = nil, ""
	return encode(d)
}

// order returns the names of the rules that are also in the map others, in the order of the document.
func order(doc *policy.Document, others map[string]ruleText) string {
	var names []string
	for i := range doc.Rules {
		if _, both := others[doc.Rules[i].Name]; both {
			names = append(names, doc.Rules[i].Name)
		}
	}
	return encode(names)
}

// encode returns a part of a document as JSON. Empty and missing values have the same JSON.
func encode(v any) string {
	text, _ := json.Marshal(v) // cannot fail for documents
	return string(text)
}

// ruleOf returns the name of the rule that a key in the store belongs to. It is the text before the first slash,
// after the hash tag for a cluster, if any.
func ruleOf(key string) string {
	if strings.HasPrefix(key, "{") {
		_, key, _ = strings.Cut(key, "}")
	}
	name, _, _ := strings.Cut(key, "/")
	return name
}
