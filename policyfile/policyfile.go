package policyfile

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// MaxDocument is the size of the largest document in bytes.
const MaxDocument = 16 << 20

// Load reads the file and compiles the policy in it: see [Parse].
func Load(path string) (*policy.Policy, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return Parse(path, data)
}

// Parse compiles the policy in data. The name is that of the file, for messages: if it ends with
// ".json", data is read as JSON, otherwise as YAML. The error is a [policy.Errors] that lists
// everything that is wrong, in the order of the lines.
func Parse(name string, data []byte) (*policy.Policy, error) {
	d := newDecoder(name, data)
	doc := d.document()
	if d.root == nil {
		return nil, d.problems // there is nothing to compile
	}
	p, err := policy.CompileAt(doc, d.where)
	if err == nil && len(d.problems) == 0 {
		return p, nil
	}
	found, _ := err.(policy.Errors)
	return nil, merge(d.problems, found)
}

// Decode returns the document in data without compiling it: see [policy.Compile]. For name and
// the error see [Parse].
func Decode(name string, data []byte) (policy.Document, error) {
	d := newDecoder(name, data)
	doc := d.document()
	if len(d.problems) > 0 {
		return policy.Document{}, merge(d.problems, nil)
	}
	return doc, nil
}

// merge returns what the decoder has found, and what the compiler has found of what the
// decoder could read: a rule of which something could not be read is not said to lack anything.
func merge(unread, found policy.Errors) policy.Errors {
	doubtful := make(map[string]bool)
	for _, p := range unread {
		doubtful[p.Path] = true
		for path := range ancestors(p.Path) {
			doubtful[path] = true
		}
	}
	all := slices.Clone(unread)
	for _, p := range found {
		if !doubtful[p.Path] {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b policy.Problem) int { return a.Line - b.Line })
	return all
}
