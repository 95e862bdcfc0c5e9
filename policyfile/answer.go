package policyfile

import (
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policy"
)

func (d *decoder) answer(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind != yaml.MappingNode {
		hint := `write "{type: text/html, file: slow-down.html}", or "body: …" in place of the file`
		if n.Kind == yaml.SequenceNode {
			hint = `write "bodies:" before it, as in "429: {bodies: […]}"`
		}
		d.fail(n.Line, hint, "%s is %s, and must be a mapping", what, kindOf(n))
		return
	}
	d.fields(n, what, d.fieldsOf(v, ""))
}

// readBodies reads the bodies of doc that are in files. It adds a problem for each file that cannot be read.
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
		d.fail(line, "keep one of them", "the answer has both file and body")
		return
	}
	file, text, err := d.readBeside(b.File, "the body", read)
	if err != nil {
		d.fail(line, "", "the body: %v", err)
		return
	}
	if b.Text = text; text == "" {
		d.fail(line, "write the text of the body into it", "the body: %s is empty", file)
	}
	d.parts[d.path.String()] = part{file: file}
}
