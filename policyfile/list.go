package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy"
)

// listFile is a file that a list of the document is in.
type listFile struct {
	path string
	data []byte
}

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

// readLists reads the lists of doc that are in files. What cannot be read is complained about.
func (d *decoder) readLists(doc *policy.Document, read func(path string) ([]byte, error)) {
	for name, l := range doc.Lists {
		if l.File == "" {
			continue
		}
		file, err := d.readBeside(l.File, "the networks", read)
		if err != nil {
			d.path = path{}.field("lists").field(name).field("file")
			d.fail(lineOf(d.root, d.path.String()), "", "list %s: %v", spelling.Quote(name), err)
			d.path = nil
			continue
		}
		d.listFiles[name] = file
		l.Networks = []string{} // not nil: it has been read
		for _, entry := range entries(file.data) {
			l.Networks = append(l.Networks, entry)
		}
		doc.Lists[name] = l
	}
}

// readBeside reads a file that the document names, whose content is what it could have itself.
func (d *decoder) readBeside(name, content string, read func(path string) ([]byte, error)) (listFile, error) {
	if read == nil {
		return listFile{}, fmt.Errorf("the file %s is not read here; write %s into the policy, or load that from a file", spelling.Quote(name), content)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(d.file), name)
	}
	data, err := read(name)
	switch {
	case err != nil:
		return listFile{}, fmt.Errorf("%w; it is looked for beside the policy, unless its name begins with \"/\"", err)
	case len(data) > MaxDocument:
		return listFile{}, fmt.Errorf("%s has more than %d bytes, which is the most", name, MaxDocument)
	}
	return listFile{name, data}, nil
}

// entries are what is in a list, one on each line that is neither empty nor a comment, with the
// numbers of the lines.
func entries(data []byte) iter.Seq2[int, string] {
	return func(yield func(line int, entry string) bool) {
		data, n := bytes.TrimPrefix(data, []byte("\ufeff")), 0
		for line := range bytes.Lines(data) {
			n++
			line, _, _ = bytes.Cut(line, []byte("#"))
			if entry := strings.TrimSpace(string(line)); entry != "" && !yield(n, entry) {
				return
			}
		}
	}
}

// inList says where an entry of a list in a file stands, of which a problem has the path.
func (d *decoder) inList(path string) (file string, line int, ok bool) {
	rest, ok := strings.CutPrefix(path, "lists")
	if !ok {
		return "", 0, false
	}
	step, rest := cutStep(rest)
	name, err := strconv.Unquote(strings.Trim(step, "[]"))
	list, known := d.listFiles[name]
	i, bad := strconv.Atoi(strings.Trim(rest, "[]"))
	if errors.Join(err, bad) != nil || !known {
		return "", 0, false
	}
	for line := range entries(list.data) {
		if i--; i < 0 {
			return list.path, line, true
		}
	}
	return "", 0, false
}
