package policyfile

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policy"
)

func (d *decoder) answer(n *yaml.Node, what string) (a policy.Answer) {
	if n.Kind != yaml.MappingNode {
		hint := `write "{type: text/html, file: slow-down.html}", or "body: …" in place of the file`
		if n.Kind == yaml.SequenceNode {
			hint = `write "bodies:" before it, as in "429: {bodies: […]}"`
		}
		d.fail(n.Line, hint, "%s is %s, and must be a mapping", what, kindOf(n))
		return a
	}
	d.fields(n, what, append(d.bodyFields(&a.Body), []field{
		{"status", func(n *yaml.Node) { a.Status = int(d.integer(n, "status", math.MaxInt32)) }},
		{"headers", func(n *yaml.Node) { a.Headers = d.textByName(n, "headers", "header %s") }},
		{"bodies", func(n *yaml.Node) { a.Bodies = d.bodies(n) }},
	}...))
	return a
}

// bodyFields are those of a body, which an answer that has only one has itself.
func (d *decoder) bodyFields(b *policy.Body) []field {
	return []field{
		{"type", func(n *yaml.Node) { b.Type = d.text(n, "type") }},
		{"file", func(n *yaml.Node) { b.File = d.text(n, "file") }},
		{"body", func(n *yaml.Node) { b.Text = d.text(n, "body") }},
	}
}

func (d *decoder) bodies(n *yaml.Node) []policy.Body {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		d.fail(n.Line, `write lines that begin with "- type: …"`, "bodies is %s, and must be a list", kindOf(n))
		return nil
	}
	return each(d, n, "bodies", func(item *yaml.Node, b *policy.Body) { d.fields(item, "a body", d.bodyFields(b)) })
}

// readBodies reads the bodies of doc that are in files. What cannot be read is complained about.
func (d *decoder) readBodies(doc *policy.Document, read func(path string) ([]byte, error)) {
	for _, status := range slices.Sorted(maps.Keys(doc.Answers)) {
		a := doc.Answers[status]
		at := path{}.field("answers").field(status)
		d.readBody(at, &a.Body, read)
		for i := range a.Bodies {
			d.readBody(at.field("bodies").item(i), &a.Bodies[i], read)
		}
		doc.Answers[status] = a
	}
}

func (d *decoder) readBody(at path, b *policy.Body, read func(path string) ([]byte, error)) {
	if b.File == "" {
		return
	}
	d.path = at.field("file")
	defer func() { d.path = nil }()
	line := lineOf(d.root, d.path.String())
	if b.Text != "" {
		d.fail(line, "keep one of them", "there is a file beside the body")
		return
	}
	file, err := d.readBeside(b.File, "the body", read)
	if err != nil {
		d.fail(line, "", "the body: %v", err)
		return
	}
	if b.Text = string(bytes.TrimPrefix(file.data, []byte("\ufeff"))); b.Text == "" {
		d.fail(line, "write into it what is to be said", "the body: %s is empty", file.path)
	}
	d.bodyFiles[at.String()] = file.path
}

// inBody says where a line of a body in a file stands, of which a problem has the path.
func (d *decoder) inBody(path string) (file string, line int, ok bool) {
	i := strings.LastIndex(path, ".file[")
	if i < 0 {
		return "", 0, false
	}
	file, ok = d.bodyFiles[path[:i]]
	line, err := strconv.Atoi(strings.TrimSuffix(path[i+len(".file["):], "]"))
	return file, line + 1, ok && err == nil
}
