package policyfile

import (
	"fmt"
	"iter"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// path leads to a field of a document.
type path []step

// step is the index in a list, or the name of a field if index is negative.
type step struct {
	name  string
	index int
}

func (p path) field(name string) path { return append(p, step{name, -1}) }
func (p path) item(i int) path        { return append(p, step{"", i}) }
func (p path) up() path               { return p[:len(p)-1] }

// String returns the path in the form that [policy.Problem] uses. Arbitrary keys, such as names of headers, are in
// quotes.
func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.index >= 0:
			fmt.Fprintf(&b, "[%d]", s.index)
		case i > 0 && (p[i-1].name == "lists" || i == 1 && (p[0].name == "answers" || p[0].name == "prices")) || i > 1 && free[p[i-1].name] || !plainName.MatchString(s.name):
			fmt.Fprintf(&b, "[%q]", s.name)
		case i > 0:
			b.WriteString("." + s.name)
		default:
			b.WriteString(s.name)
		}
	}
	return b.String()
}

var plainName = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// free has the names of the mappings in rules, overrides and answers that have arbitrary keys. Lists, answers and
// prices have arbitrary keys, too.
var free = map[string]bool{"headers": true, "attributes": true, "body": true, "response_json": true, "tiers": true, "key": true}

// ancestors returns the paths of the values that contain the field at a path. The first path is "", the path of the
// document.
func ancestors(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := path; rest != ""; {
			_, after := cutStep(rest)
			if !yield(strings.TrimSuffix(path[:len(path)-len(rest)], ".")) {
				return
			}
			rest = after
		}
	}
}

// cutStep takes the first step off a path such as rules[3].headers["X-Plan"]: a name, an index
// in brackets, or a quoted name in brackets.
func cutStep(path string) (step, rest string) {
	switch {
	case strings.HasPrefix(path, "[\""):
		quoted, err := strconv.QuotedPrefix(path[1:])
		if err != nil {
			return path, ""
		}
		step, rest = path[:len(quoted)+2], path[len(quoted)+2:]
	case strings.HasPrefix(path, "["):
		end := strings.IndexByte(path, ']') + 1
		step, rest = path[:end], path[end:]
	default:
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		step, rest = path[:end], path[end:]
	}
	return step, strings.TrimPrefix(rest, ".")
}

// lineOf returns the line of the field at a path. If the field is missing, it returns the line of the innermost
// ancestor that exists.
func lineOf(root *yaml.Node, path string) int {
	n, line := root, root.Line
	for path != "" && n != nil {
		var step string
		step, path = cutStep(path)
		switch {
		case step[0] != '[':
			n, line = value(n, step, line)
		case step[1] == '"':
			name, _ := strconv.Unquote(step[1 : len(step)-1])
			n, line = value(n, name, line)
		default:
			i, _ := strconv.Atoi(step[1 : len(step)-1])
			if n.Kind == yaml.SequenceNode && i < len(n.Content) { // otherwise, n may be a single item, written without a list
				n = n.Content[i]
				line = n.Line
			} else if n.Style&yaml.LiteralStyle != 0 { // the item is a line of a text, which begins on the line after the "|"
				line = n.Line + 1 + i
			}
		}
	}
	return line
}

// value returns the value of a key of the mapping n, and the line of the key. If n is no mapping or does not have the
// key, it returns nil and the given line.
func value(n *yaml.Node, key string, line int) (*yaml.Node, int) {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	}
	return nil, line
}
