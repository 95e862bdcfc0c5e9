package policyfile

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

// maxDepth is how deep JSON may be nested.
const maxDepth = 100

// parseJSON returns the one value in data as the YAML parser would, or nil.
func (d *decoder) parseJSON(data []byte) *yaml.Node {
	r := jsonReader{Decoder: json.NewDecoder(bytes.NewReader(data)), data: data}
	r.UseNumber()
	root, err := r.value(0)
	if err == nil {
		_, err = r.Token()
	}
	switch end := errors.Is(err, io.EOF); {
	case end && root == nil:
		d.fail(1, "it begins with \"{\"", "the document is empty")
		return nil
	case err == nil:
		d.fail(r.line(), "remove it", "there is something behind the document")
		return nil
	case !end:
		line := r.line()
		if syntax := new(json.SyntaxError); errors.As(err, &syntax) {
			line = r.lineAt(int(syntax.Offset))
		}
		d.fail(line, "look for what is missing before it", "this is not JSON: %.200s", err)
		return nil
	}
	return root
}

// jsonReader makes nodes of JSON, with the lines, and with keys that are there twice.
type jsonReader struct {
	*json.Decoder
	data []byte
	at   int // up to where lines have been counted
	ends int // of lines, before that
}

// line returns the line that has been reached.
func (r *jsonReader) line() int { return r.lineAt(int(r.InputOffset())) }

// lineAt returns the line of an offset that is not before those that were asked for.
func (r *jsonReader) lineAt(offset int) int {
	if at := min(offset, len(r.data)); at > r.at {
		r.ends += bytes.Count(r.data[r.at:at], []byte("\n"))
		r.at = at
	}
	return 1 + r.ends
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line()}
	switch v := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
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

// content reads what is in an object or a list.
func (r *jsonReader) content(n *yaml.Node, open json.Delim, depth int) error {
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

// unexpected makes another error of the end of the data.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
