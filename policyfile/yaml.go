package policyfile

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

	"github.com/sluicehq/sluice/policy"
)

// parse returns the one document in data, or nil.
func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > MaxDocument {
		d.fail(1, "split it, or move subjects into a database", "the document has %d bytes, the maximum is %d", len(data), MaxDocument)
		return nil
	}
	if strings.HasSuffix(d.file, ".json") {
		return d.parseJSON(data)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		d.fail(1, "the first line is \"version: 1\"", "the document is empty")
		return nil
	case err != nil:
		d.syntax(data, err)
		return nil
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		d.fail(more.Line, "put it into a file of its own", "the file has a second document")
	case !errors.Is(err, io.EOF):
		d.syntax(data, err)
		return nil
	}
	if !d.plain(&doc) {
		return nil
	}
	return doc.Content[0]
}

// syntax adds a problem for an error of the YAML parser.
func (d *decoder) syntax(data []byte, err error) {
	d.problems = append(d.problems, YAMLProblem(d.file, data, err))
}

var (
	parserError   = regexp.MustCompile(`^did not find expected ('-'|',|key|node|<)`)
	yamlError     = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// YAMLProblem converts an error of the YAML parser about data to a problem. It finds the line, which the parser
// omits from some errors and miscounts in others.
func YAMLProblem(file string, data []byte, err error) policy.Problem {
	line, message := 1, err.Error()
	if m := yamlError.FindStringSubmatch(message); m != nil {
		message = m[2]
		switch n, err := strconv.Atoi(m[1]); {
		case err != nil:
			line = unnamedLine(data, message)
		case parserError.MatchString(message): // these errors count lines from 0
			line = min(n+1, bytes.Count(data, []byte("\n"))+1)
		default:
			line = n
		}
	}
	hint := "quote text that contains { } [ ] : # or *, and align entries of the same block"
	if tab := tabbedLine(data, line-1); tab > 0 && (tab == line || strings.Contains(message, "tab")) {
		line, hint = tab, "indent with spaces: YAML does not allow tabs"
	} else if at, mend := slip(data, line, message); at > 0 {
		line, hint = at, mend
	}
	return policy.Problem{File: file, Line: line, Message: fmt.Sprintf("this is not YAML: %.200s", message), Hint: hint}
}

// unnamedLine finds the line of an error that names no line. It returns the line of the byte or the alias that the
// message is about, or 1.
func unnamedLine(data []byte, message string) int {
	at := -1
	if m := unknownAnchor.FindStringSubmatch(message); m != nil {
		at = bytes.Index(data, []byte("*"+m[1]))
	} else if strings.Contains(message, "control characters") || strings.Contains(message, "UTF-") || strings.Contains(message, "Unicode") {
		at = unreadable(data)
	}
	return 1 + bytes.Count(data[:max(at, 0)], []byte("\n"))
}

// unreadable returns the index of the first byte that is not UTF-8, or of the first character that YAML does not
// allow, or -1.
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

// tabbedLine returns the number of the first line that has a tab in its indentation, or 0. The start is the number of
// the first line that it examines.
func tabbedLine(data []byte, start int) int {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := bytes.TrimLeft(line, " ")
		if n >= start && len(text) > 0 && text[0] == '\t' && len(bytes.TrimSpace(text)) > 0 {
			return n
		}
	}
	return 0
}

// plain reports whether n and the nodes below it have no anchors, aliases and tags, which hide parts of a document
// from its readers, and can make a small document huge.
func (d *decoder) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n.Line, "write it out", "the alias *%.60s is not supported", n.Value)
		return false
	case n.Anchor != "":
		d.fail(n.Line, "repeat the value where it is used", "the anchor &%.60s is not supported", n.Anchor)
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
