package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// Paths is a list of compiled paths. It never changes, so several scanners can share it.
type Paths struct {
	nodes  []node // a tree; nodes[root] is the top of a document
	leaves []int  // the node of each path
}

// node is a position in a document at which a path ends or through which it leads.
type node struct {
	name     string
	children []int
	leaf     bool
}

const (
	root = 0
	none = -1 // stands for values that no path leads to
)

// Compile compiles paths: names of members, joined by dots, from the top of a document to a number. The same path
// may appear more than once.
func Compile(paths []string) (*Paths, error) {
	p := &Paths{nodes: []node{{}}}
	for _, path := range paths {
		names := strings.Split(path, ".")
		if err := check(path, names); err != nil {
			return nil, err
		}
		at := root
		for _, name := range names {
			at = p.add(at, name)
		}
		p.nodes[at].leaf = true
		p.leaves = append(p.leaves, at)
	}
	return p, nil
}

func check(path string, names []string) error {
	switch {
	case slices.Contains(names, ""):
		return fmt.Errorf("path %q: a name is empty; write names joined by single dots, for example usage.total_tokens", path)
	case slices.ContainsFunc(names, func(name string) bool { return len(name) > maxToken }):
		return fmt.Errorf("path %q: a name is longer than %d bytes", path, maxToken)
	case len(names) > jsonscan.MaxDepth:
		return fmt.Errorf("path %q: more than %d names", path, jsonscan.MaxDepth)
	}
	return nil
}

// add returns the child of parent with the given name, and creates the child if it is missing.
func (p *Paths) add(parent int, name string) int {
	if at := p.child(parent, []byte(name)); at != none {
		return at
	}
	p.nodes = append(p.nodes, node{name: name})
	at := len(p.nodes) - 1
	p.nodes[parent].children = append(p.nodes[parent].children, at)
	return at
}

// child returns the child of parent with the given name, or none.
func (p *Paths) child(parent int, name []byte) int {
	if parent == none {
		return none
	}
	for _, at := range p.nodes[parent].children {
		if p.nodes[at].name == string(name) {
			return at
		}
	}
	return none
}

// Len returns the number of paths.
func (p *Paths) Len() int { return len(p.leaves) }
