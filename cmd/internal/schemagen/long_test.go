//go:build long

package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policyfile"
)

// replacements has the values that replace each value of a policy.
var replacements = []string{"~", `""`, "{zzz: {zzz: zzz}}", "[[1]]", "[]", "{}"}

// The schema refuses every policy that cannot be read because of an unknown key, a missing key, or a value of the wrong
// kind. Every policy that the schema refuses is invalid.
func TestLongRefusesTheSame(t *testing.T) {
	s := schema(t)
	refused, accepted := 0, 0
	judge := func(what string, root *yaml.Node) {
		text, err := yaml.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		_, unread := policyfile.Decode("policy.yaml", text)
		_, wrong := policyfile.Parse("policy.yaml", text)
		switch invalid := s.Validate(value(t, root)); {
		case invalid == nil && unread != nil:
			t.Errorf("%s is valid according to the schema: %v", what, unread)
		case invalid != nil && wrong == nil:
			t.Errorf("%s is a valid policy, but not according to the schema: %v", what, invalid)
		case invalid == nil:
			accepted++
		default:
			refused++
		}
	}
	all := policies(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(name, ".md") {
			continue // the examples in documents add little
		}
		root := parse(t, all[name])
		for _, n := range nodes(root) {
			was := *n
			others := replacements
			switch {
			case n.Tag == "!!bool":
				others = append(others[:len(others):len(others)], "perhaps")
			case n.Tag == "!!int" && was.Value != "1":
				others = append(others[:len(others):len(others)], "1.5")
			}
			for _, other := range others {
				*n = *parse(t, []byte(other))
				judge(name+" with "+other+" in place of "+was.Value, root)
			}
			*n = was
			if n.Kind == yaml.MappingNode {
				n.Content = append(slices.Clone(was.Content), parse(t, []byte("zzz")), parse(t, []byte("zzz")))
				judge(name+" with an unknown key", root)
				*n = was
			}
		}
		for i := 0; i < len(root.Content); i += 2 {
			if key := root.Content[i].Value; key == "version" || key == "rules" {
				was := *root
				root.Content = slices.Delete(slices.Clone(was.Content), i, i+2)
				judge(name+" without "+key, root)
				*root = was
			}
		}
	}
	if refused < 500 || accepted < 40 {
		t.Errorf("%d policies were refused and %d accepted, want at least 500 and 40", refused, accepted)
	}
}

// nodes returns all values below a node.
func nodes(n *yaml.Node) (all []*yaml.Node) {
	for i, c := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			all = append(append(all, c), nodes(c)...)
		}
	}
	return all
}
