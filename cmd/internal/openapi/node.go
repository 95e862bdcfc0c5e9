package openapi

import (
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxHops bounds the references, aliases and merges between two nodes.
const maxHops = 32

// field returns the value of a key, or nil if the key is missing. It follows references within the document.
func (d *Document) field(n *yaml.Node, key string) *yaml.Node {
	return d.resolve(lookup(d.resolve(n, 0), key), 0)
}

// resolve follows aliases and references within the document. It returns nil for a reference without a target, and
// returns a reference to another file unchanged. It caches targets, because a pointer can lead through many
// references.
func (d *Document) resolve(n *yaml.Node, hops int) *yaml.Node {
	first := n
	for ; n != nil; hops++ {
		if hops == maxHops {
			return nil
		}
		if n.Kind == yaml.AliasNode {
			n = n.Alias
			continue
		}
		ref, found := strings.CutPrefix(text(lookup(n, "$ref")), "#")
		if !found {
			return n
		}
		if to, known := d.targets[first]; known {
			return to
		}
		d.targets[first] = nil // if the references form a loop, the target stays nil
		n = d.resolve(d.pointer(ref, hops+1), hops+1)
		d.targets[first] = n
		return n
	}
	return nil
}

// pointer returns the node at a JSON pointer, or nil.
func (d *Document) pointer(ref string, hops int) *yaml.Node {
	ref, err := url.PathUnescape(ref)
	if err != nil {
		return nil
	}
	n := d.root
	for token := range strings.SplitSeq(strings.TrimPrefix(ref, "/"), "/") {
		if n = d.resolve(n, hops); n == nil {
			return nil
		}
		if n.Kind == yaml.SequenceNode {
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(n.Content) {
				return nil
			}
			n = n.Content[i]
			continue
		}
		n = lookup(n, strings.NewReplacer("~1", "/", "~0", "~").Replace(token))
	}
	return n
}

// lookup returns the value of a key of a mapping, or nil.
func lookup(n *yaml.Node, key string) *yaml.Node {
	for k, v := range occurrences(n) {
		if k.Value == key && k.Kind == yaml.ScalarNode {
			return v
		}
	}
	return nil
}

// pairs yields the keys and values of a mapping, and then those that "<<" merges into it. If a key occurs twice,
// it yields only the first occurrence.
func pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for key, value := range occurrences(n) {
			if key.Kind == yaml.ScalarNode {
				if seen[key.Value] {
					continue
				}
				seen[key.Value] = true
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// occurrences is like pairs, but yields all occurrences of a key. The first one takes precedence.
func occurrences(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		todo := []*yaml.Node{n}
		for hops := 0; len(todo) > 0 && hops < maxHops; hops++ {
			if n, todo = todo[0], todo[1:]; n != nil && n.Kind == yaml.AliasNode {
				n = n.Alias
			}
			switch {
			case n == nil:
			case n.Kind == yaml.SequenceNode && hops > 0: // mappings to merge
				todo = slices.Concat(n.Content, todo)
			case n.Kind == yaml.MappingNode:
				var merged []*yaml.Node
				for i := 0; i+1 < len(n.Content); i += 2 {
					if n.Content[i].Tag == "!!merge" {
						merged = append(merged, n.Content[i+1])
					} else if !yield(n.Content[i], n.Content[i+1]) {
						return
					}
				}
				todo = slices.Concat(merged, todo)
			}
		}
	}
}

// items returns the elements of a list. It follows references within the document.
func (d *Document) items(n *yaml.Node) (all []*yaml.Node) {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	for _, c := range n.Content {
		if c = d.resolve(c, 0); c != nil {
			all = append(all, c)
		}
	}
	return all
}

// text returns the text of a scalar, or "" for other nodes.
func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// whole returns the positive whole number in a scalar, which may be a text.
func whole(n *yaml.Node) (int64, bool) {
	v, err := strconv.ParseInt(strings.NewReplacer("_", "", ",", "").Replace(text(n)), 10, 64)
	return v, err == nil && v > 0
}
