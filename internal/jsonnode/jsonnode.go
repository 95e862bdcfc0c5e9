// Package jsonnode reads JSON into the nodes of the YAML parser, with line numbers. Packages policyfile and
// cmd/internal/openapi import it.
package jsonnode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds the nesting of JSON.
const maxDepth = 100

// Error is a mistake in a document, with its line and a hint how to correct it.
type Error struct {
	Line          int
	Message, Hint string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s; %s", e.Line, e.Message, e.Hint) }

// Read returns the only value in data. Keys may occur twice in an object. The error is an [*Error].
func Read(data []byte) (*yaml.Node, error) {
	r := reader{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data}
	r.UseNumber()
	root, err := r.value(0)
	if err == nil {
		_, err = r.Token()
	}
	switch end := errors.Is(err, io.EOF); {
	case end && root == nil:
		return nil, &Error{1, "the document is empty", "the first character is \"{\""}
	case err == nil:
		return nil, &Error{r.line(), "there is data after the document", "remove it"}
	case !end:
		line := r.line()
		if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
			line = r.lineAt(int(syntax.Offset))
		}
		return nil, &Error{line, fmt.Sprintf("this is not JSON: %.200s", err), "something may be missing before this line"}
	}
	return root, nil
}

// reader makes nodes from JSON.
type reader struct {
	*json.Decoder
	data []byte
	at   int // the offset up to which lines have been counted
	ends int // the number of line ends before that offset
}

// line returns the current line.
func (r *reader) line() int { return r.lineAt(int(r.InputOffset())) }

// lineAt returns the line of an offset. Offsets must not decrease between calls.
func (r *reader) lineAt(offset int) int {
	if at := min(offset, len(r.data)); at > r.at {
		r.ends += bytes.Count(r.data[r.at:at], []byte("\n"))
		r.at = at
	}
	return 1 + r.ends
}

func (r *reader) value(depth int) (*yaml.Node, error) {
	token, err := r.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line()}
	switch v := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("its values are nested more than %d deep", maxDepth)
		}
		return n, r.content(n, v, depth)
	case string:
		n.Value, n.Tag = v, "!!str"
	case json.Number:
		n.Value, n.Tag = v.String(), "!!int"
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case bool:
		n.Value, n.Tag = strconv.FormatBool(v), "!!bool"
	case nil:
		n.Tag = "!!null"
	}
	return n, nil
}

// content reads the members of an object or a list.
func (r *reader) content(n *yaml.Node, open json.Delim, depth int) error {
	n.Kind = yaml.SequenceNode
	if open == '{' {
		n.Kind = yaml.MappingNode
	}
	for r.More() {
		child, err := r.value(depth + 1)
		if err != nil {
			return unexpected(err)
		}
		n.Content = append(n.Content, child)
	}
	_, err := r.Token() // the end
	return unexpected(err)
}

// unexpected replaces io.EOF within a value by io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
