package policyfile

import (
	"bytes"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
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

// readLists reads the lists of doc that are in files.
func (d *decoder) readLists(doc *policy.Document, read func(path string) ([]byte, error)) {
	for name, l := range doc.Lists {
		if l.File == "" {
			continue
		}
		data, err := d.readList(l.File, read)
		if err != nil {
			d.path = path{}.field("lists").field(name).field("file")
			d.fail(lineOf(d.root, d.path.String()), listMend(read != nil), "list %s: %v", spelling.Quote(name), err)
			d.path = nil
			continue
		}
		l.Networks = []string{} // which has been read, and may have none
		for _, entry := range entries(data) {
			l.Networks = append(l.Networks, entry)
		}
		doc.Lists[name] = l
	}
}

// readList reads the file of a list, which is relative to that of the document.
func (d *decoder) readList(file string, read func(path string) ([]byte, error)) ([]byte, error) {
	if read == nil {
		return nil, fmt.Errorf("the file %s is not read, since the policy itself is in no file", spelling.Quote(file))
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(d.file), file)
	}
	data, err := read(file)
	if err == nil && len(data) > MaxDocument {
		err = fmt.Errorf("%s has more than %d bytes", file, MaxDocument)
	}
	if err == nil {
		d.listFiles = append(d.listFiles, listFile{file, data})
	}
	return data, err
}
