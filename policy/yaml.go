package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxDocument is the largest policy document in bytes.
const MaxDocument = 16 << 20

// decoder reads values from YAML nodes and gathers every problem on the way. Its
// methods return a zero value, or false, for what they have complained about.
type decoder struct {
	file     string
	rule     string // the rule that is being read
	problems Errors
}

func (d *decoder) fail(line int, hint, format string, args ...any) {
	d.problems = append(d.problems, Problem{File: d.file, Line: line, Rule: d.rule, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// root returns the one document in data, or nil.
func (d *decoder) root(data []byte) *yaml.Node {
	if len(data) > MaxDocument {
		d.fail(1, "split it, or keep subjects out of it", "the document has %d bytes, and %d are the most", len(data), MaxDocument)
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		d.fail(1, "it begins with \"version: 1\"", "the document is empty")
		return nil
	case err != nil:
		d.syntax(data, err)
		return nil
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		d.fail(more.Line, "put it into a file of its own", "there is a second document in the file")
	case !errors.Is(err, io.EOF):
		d.syntax(data, err)
	}
	if !d.plain(&doc) {
		return nil
	}
	return doc.Content[0]
}

// syntax reports what the YAML parser did not like.
func (d *decoder) syntax(data []byte, err error) {
	p := YAMLProblem(d.file, data, err)
	p.Rule = d.rule
	d.problems = append(d.problems, p)
}

var (
	yamlError     = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// YAMLProblem makes a Problem of an error of the YAML parser about data, with the line,
// which the parser leaves out of some errors and miscounts in others.
func YAMLProblem(file string, data []byte, err error) Problem {
	line, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		switch n, err := strconv.Atoi(m[1]); {
		case err != nil:
			line = unnamedLine(data, message)
		case strings.HasPrefix(message, "did not find expected"): // these the parser counts from 0
			line = min(n+1, bytes.Count(data, []byte("\n"))+1)
		default:
			line = n
		}
	}
	hint := "put text that holds { } [ ] : # or * into quotes"
	if tab := tabbedLine(data, line-1); tab > 0 && (tab == line || strings.Contains(message, "tab")) {
		line, hint = tab, "indent with spaces: YAML does not take tabs"
	}
	return Problem{File: file, Line: line, Message: fmt.Sprintf("this is not YAML: %.200s", message), Hint: hint}
}

// unnamedLine returns the line of an error for which the parser names none: it is about a
// byte, an anchor, or the first line.
func unnamedLine(data []byte, message string) int {
	at := -1
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		at = bytes.Index(data, []byte("*"+m[1]))
	} else if strings.Contains(message, "control characters") || strings.Contains(message, "UTF-") || strings.Contains(message, "Unicode") {
		at = unreadable(data)
	}
	return 1 + bytes.Count(data[:max(at, 0)], []byte("\n"))
}

// unreadable returns the index of the first byte that is no text, or -1.
func unreadable(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 || unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' && r != 0x85 || r&^1 == 0xFFFE {
			return i
		}
		i += n
	}
	return -1
}

// tabbedLine returns the first line from a line on with a tab in its indentation, or 0.
func tabbedLine(data []byte, from int) int {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := bytes.TrimLeft(line, " ")
		if n >= from && len(text) > 0 && text[0] == '\t' && len(bytes.TrimSpace(text)) > 0 {
			return n
		}
	}
	return 0
}

// plain reports whether there are no anchors, aliases and tags at or below n. They make
// a document say more than one can see in it, and are how a small one explodes.
func (d *decoder) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n.Line, "write it out", "the alias *%.60s is not supported", n.Value)
		return false
	case n.Anchor != "":
		d.fail(n.Line, "write it out where it is used", "the anchor &%.60s is not supported", n.Anchor)
		return false
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n.Line, "leave the tag out", "the tag %.60s is not supported", n.Tag)
		return false
	}
	ok := true
	for _, c := range n.Content {
		ok = d.plain(c) && ok
	}
	return ok
}

// kindOf says what n is, in words.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	}
	return quote(n.Value)
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// pair is an entry of a mapping whose keys are free.
type pair struct {
	line  int
	key   string
	value *yaml.Node
}

// pairs returns the entries of a mapping, each key once.
func (d *decoder) pairs(n *yaml.Node, what string) []pair {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, "write \"name: value\" lines", "%s is %s, and must be a mapping", what, kindOf(n))
		return nil
	}
	lines := make(map[string]int, len(n.Content)/2)
	ps := make([]pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || isNull(k) {
			d.fail(k.Line, "put it into quotes if it is a name", "a key of %s is %s", what, kindOf(k))
			continue
		}
		if before, twice := lines[k.Value]; twice {
			d.fail(k.Line, "remove one of them", "%s has the key %s twice, first in line %d", what, quote(k.Value), before)
			continue
		}
		lines[k.Value] = k.Line
		ps = append(ps, pair{k.Line, k.Value, v})
	}
	return ps
}

// field is a key of a mapping whose keys are known, and what reads its value.
type field struct {
	name string
	read func(*yaml.Node)
}

// fields reads a mapping with known keys.
func (d *decoder) fields(n *yaml.Node, what string, fields []field) {
next:
	for _, p := range d.pairs(n, what) {
		for _, f := range fields {
			if f.name == p.key {
				f.read(p.value)
				continue next
			}
		}
		names := make([]string, len(fields))
		for i, f := range fields {
			names[i] = f.name
		}
		d.fail(p.line, suggest(p.key, names), "unknown key %s in %s", quote(p.key), what)
	}
}

// items returns the elements of a list; a single scalar is a list of one.
func (d *decoder) items(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case n.Kind == yaml.SequenceNode:
		return n.Content
	case n.Kind == yaml.ScalarNode && !isNull(n):
		return []*yaml.Node{n}
	}
	d.fail(n.Line, "write \"[one, two]\", or lines that begin with \"- \"", "%s is %s, and must be a list", what, kindOf(n))
	return nil
}

// text returns a scalar as it is written.
func (d *decoder) text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode && len(n.Content) > 0:
		d.fail(n.Line, "put text that holds { } [ ] or \": \" into quotes", "%s is %s, and must be text", what, kindOf(n))
		return "", false
	case n.Kind != yaml.ScalarNode || isNull(n) || n.Value == "":
		d.fail(n.Line, "write a value, or leave the key out", "%s is empty", what)
		return "", false
	}
	return n.Value, true
}

// someItems is items for a list that must not be empty.
func (d *decoder) someItems(n *yaml.Node, what string) []*yaml.Node {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.fail(n.Line, "fill it, or leave the key out", "%s is an empty list", what)
	}
	return d.items(n, what)
}

// texts returns a list of scalars, or one.
func (d *decoder) texts(n *yaml.Node, what string, each func(line int, s string)) {
	for _, item := range d.someItems(n, what) {
		if s, ok := d.text(item, "an entry of "+what); ok {
			each(item.Line, s)
		}
	}
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// integer returns a whole number between least and most.
func (d *decoder) integer(n *yaml.Node, what string, least, most int64) (int64, bool) {
	s, ok := d.text(n, what)
	if !ok {
		return 0, false
	}
	if !wholeNumber.MatchString(s) {
		d.fail(n.Line, "write digits only, without a leading 0, a point or an exponent", "%s is %s, and must be a whole number", what, quote(s))
		return 0, false
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < least || v > most {
		d.fail(n.Line, fmt.Sprintf("use a number from %d to %d", least, most), "%s is %.60s", what, s)
		return 0, false
	}
	return v, true
}

func (d *decoder) boolean(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" {
		d.fail(n.Line, "write true or false", "%s is %s", what, kindOf(n))
	}
	return n.Value == "true"
}

// choice returns the index in names of the scalar n.
func (d *decoder) choice(n *yaml.Node, what string, names []string) int {
	s, ok := d.text(n, what)
	if !ok {
		return 0
	}
	for i, name := range names {
		if s == name {
			return i
		}
	}
	d.fail(n.Line, suggest(s, names), "unknown %s %s", what, quote(s))
	return 0
}

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// checkName complains about a name that would not read well in a key or a header.
func (d *decoder) checkName(line int, what, s string) bool {
	if nameSyntax.MatchString(s) {
		return true
	}
	hint := "use up to 64 of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or digit"
	if lower := strings.ToLower(s); lower != s && nameSyntax.MatchString(lower) {
		hint = fmt.Sprintf("write %q", lower)
	}
	d.fail(line, hint, "%s %s is not a name", what, quote(s))
	return false
}
