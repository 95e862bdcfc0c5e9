package policyfile

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy"
)

// networks reads a list, which may be empty, or the name of its file.
func (d *decoder) networks(n *yaml.Node, l *policy.List, what string) {
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
	case n.Kind != yaml.MappingNode:
		d.list(n, reflect.ValueOf(&l.Networks).Elem(), what)
	default:
		d.fields(n, what, []field{{"file", func(n *yaml.Node) { l.File = d.text(n, "file") }}})
		if len(n.Content) == 0 {
			d.fail(n.Line, `write "[10.0.0.0/8, 192.0.2.7]", or "{file: networks.txt}"`, "%s has no file", what)
		}
	}
}

// readLists reads the lists of doc that are in files. It adds a problem for each file that cannot be read.
func (d *decoder) readLists(doc *policy.Document, read func(path string) ([]byte, error)) {
	for name, l := range doc.Lists {
		if l.File == "" {
			continue
		}
		at := path{}.field("lists").field(name)
		file, data, err := d.readBeside(l.File, "the networks", read)
		if err != nil {
			d.path = at.field("file")
			d.fail(lineOf(d.root, d.path.String()), "", "list %s: %v", spelling.Quote(name), err)
			d.path = nil
			continue
		}
		l.Networks = []string{} // not nil: it has been read
		p := part{file, []int{}}
		for i, line := range strings.Split(data, "\n") {
			line, _, _ = strings.Cut(line, "#")
			if entry := strings.TrimSpace(line); entry != "" {
				l.Networks, p.lines = append(l.Networks, entry), append(p.lines, i+1)
			}
		}
		doc.Lists[name], d.parts[at.String()] = l, p
	}
}

// readBeside reads the file with the given name, which is relative to the document. It also returns the path of the
// file. Errors refer to the content of the file by the parameter content.
func (d *decoder) readBeside(name, content string, read func(path string) ([]byte, error)) (file, text string, err error) {
	if read == nil {
		return "", "", fmt.Errorf("the file %s cannot be read here; write %s into the policy, or load the policy from a file", spelling.Quote(name), content)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(d.file), name)
	}
	data, err := read(name)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("%w; the path is relative to the policy, unless it starts with \"/\"", err)
	case len(data) > MaxDocument:
		return "", "", fmt.Errorf("%s has more than %d bytes", name, MaxDocument)
	}
	return name, strings.TrimPrefix(string(data), "\ufeff"), nil
}
