package policyfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// MaxDocument is the size of the largest document in bytes.
const MaxDocument = 16 << 20

// Compiler compiles a document to a policy, as [policy.CompileAt] does.
type Compiler func(doc policy.Document, where func(path string) (file string, line int)) (*policy.Policy, error)

// Load reads a file, and the files of its lists, answers and prices, and compiles the policy: see [Parse].
func Load(path string) (*policy.Policy, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return ParseWith(path, data, ReadFile)
}

// ReadFile returns the content of a file, but at most one byte more than [MaxDocument]. This is enough for a larger
// file to be rejected.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxDocument+1))
}

// Parse compiles the policy in data. The name is the name of the file, for messages. If it ends with ".json", data
// is read as JSON, and otherwise as YAML. The error is a [policy.Errors] with all problems, in the order of the
// lines. Lists, answers and prices in other files are errors: see [ParseWith].
func Parse(name string, data []byte) (*policy.Policy, error) {
	return ParseWith(name, data, nil)
}

// ParseWith is like [Parse], but lists, bodies of answers, and prices can be in other files. For each list, body and
// price list that names a file, ParseWith calls read to get the content of the file. A relative path is joined to the
// directory of name: if name is "conf/policy.yaml", the path "bots.txt" becomes "conf/bots.txt".
func ParseWith(name string, data []byte, read func(path string) ([]byte, error)) (*policy.Policy, error) {
	return ParseTo(name, data, read, policy.CompileAt)
}

// ParseTo is like [ParseWith], with compile in place of [policy.CompileAt], for example to compile the document
// together with another one. If only a part of the document can be read, ParseTo calls compile to find further
// problems, and ignores the policy. The error is a [policy.Errors], unless compile returns another kind of error.
func ParseTo(name string, data []byte, read func(path string) ([]byte, error), compile Compiler) (*policy.Policy, error) {
	d := newDecoder(name, data)
	doc := d.document()
	d.readLists(&doc, read)
	d.readBodies(&doc, read)
	d.readPrices(&doc, read)
	if d.root == nil {
		return nil, d.problems // nothing to compile
	}
	p, err := compile(doc, d.where)
	if err == nil && len(d.problems) == 0 {
		return p, nil
	}
	found, ok := err.(policy.Errors)
	switch {
	case err == nil || ok:
		return nil, merge(d.problems, found, name)
	case len(d.problems) == 0:
		return nil, err
	}
	return nil, errors.Join(merge(d.problems, nil, name), err)
}

// Decode returns the document in data without compiling it: see [policy.Compile]. The name and the error are as in
// [Parse].
func Decode(name string, data []byte) (policy.Document, error) {
	d := newDecoder(name, data)
	doc := d.document()
	if len(d.problems) > 0 {
		return policy.Document{}, merge(d.problems, nil, name)
	}
	return doc, nil
}

// merge returns the problems of the decoder, and those of the compiler about values that the decoder could read. So
// a rule with an unreadable part is not reported as incomplete. Problems in the file with the given name come first,
// in the order of the lines.
func merge(unread, found policy.Errors, name string) policy.Errors {
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
	slices.SortStableFunc(all, func(a, b policy.Problem) int {
		switch {
		case a.File == b.File:
			return a.Line - b.Line
		case a.File == name:
			return -1
		case b.File == name:
			return 1
		}
		return strings.Compare(a.File, b.File)
	})
	return all
}
