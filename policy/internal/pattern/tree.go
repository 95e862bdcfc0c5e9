package pattern

import (
	"strings"

	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/paths"
)

// Tree is an index over the patterns of all rules: a trie of segments for each host. The cost of a lookup depends
// on the number of patterns that match the request or the start of its path, and not on the number of all other
// patterns. The zero Tree is empty.
type Tree struct {
	IgnoreCase bool             // whether paths are compared without regard to case; set it before the first Add
	any        node             // the patterns without a host
	hosts      map[string]*node // the patterns with a host
}

// node stands for the patterns that start with the same segments.
type node struct {
	few   []child          // the children for literal segments
	many  map[string]*node // the children for literal segments if there are more than maxFew
	wild  *node            // the child for {name}
	here  []entry          // the patterns that end here
	below []entry          // the patterns that match here and everything below
}

// child is a node with the segment that leads to it.
type child struct {
	seg  string
	node *node
}

// maxFew is the maximum number of children that are compared one by one. For so few children, a map is slower, and
// takes ten times the memory, which the garbage collector has to scan.
const maxFew = 6

type entry struct {
	method string // "" is any
	id     int32
	exact  bool // whether the pattern does not match paths with a suffix
}

// Add makes Lookup return id for requests that p matches. Unless exact is true, p also matches if the last segment
// of the path has a suffix such as ".json", with which clients of Rails and other frameworks choose the format of
// the response.
func (t *Tree) Add(p *Pattern, id int, exact bool) {
	n := t.host(p.Host)
	for _, seg := range p.segs {
		n = n.child(seg, t.IgnoreCase)
	}
	list := &n.here
	if p.multi {
		list = &n.below
	}
	*list = append(*list, entry{p.Method, int32(id), exact})
}

// host returns the trie of a host.
func (t *Tree) host(name string) *node {
	if name == "" {
		return &t.any
	}
	if t.hosts == nil {
		t.hosts = make(map[string]*node)
	}
	if t.hosts[name] == nil {
		t.hosts[name] = new(node)
	}
	return t.hosts[name]
}

func (n *node) child(seg string, ignoreCase bool) *node {
	if seg == "" {
		if n.wild == nil {
			n.wild = new(node)
		}
		return n.wild
	}
	if ignoreCase {
		seg = string(fold.AppendCase(nil, seg))
	}
	if known := n.literal(seg); known != nil {
		return known
	}
	return n.addLiteral(seg)
}

// literal returns the child for a segment, or nil.
func (n *node) literal(seg string) *node {
	if n.many != nil {
		return n.many[seg]
	}
	for i := range n.few {
		if n.few[i].seg == seg {
			return n.few[i].node
		}
	}
	return nil
}

func (n *node) addLiteral(seg string) *node {
	added := new(node)
	switch {
	case n.many != nil:
		n.many[seg] = added
	case len(n.few) < maxFew:
		n.few = append(n.few, child{seg, added})
	default:
		n.many = map[string]*node{seg: added}
		for _, c := range n.few {
			n.many[c.seg] = c.node
		}
		n.few = nil
	}
	return added
}

// AnyMethod makes Lookup find patterns regardless of their method. [Method] never returns it.
const AnyMethod = ""

// Lookup appends to dst the ids of all matching patterns, in no particular order. An id that was added with several
// patterns may occur more than once. method must be a result of [Method], or AnyMethod. The host may have a port.
func (t *Tree) Lookup(dst []int32, method, host string, v *paths.Reading) []int32 {
	if v.Never {
		return dst
	}
	dst = t.any.lookup(dst, method, v)
	if len(t.hosts) > 0 {
		if n := t.hosts[Host(host)]; n != nil {
			dst = n.lookup(dst, method, v)
		}
	}
	return dst
}

func (n *node) lookup(dst []int32, method string, v *paths.Reading) []int32 {
	if v.Every {
		return n.all(dst, method)
	}
	return n.match(dst, method, v.Segs)
}

func (n *node) match(dst []int32, method string, segs []string) []int32 {
	for {
		dst = appendIDs(dst, n.below, method)
		if len(segs) == 0 {
			return appendIDs(dst, n.here, method)
		}
		if n.wild != nil {
			dst = n.wild.match(dst, method, segs[1:])
		}
		if dot := suffix(segs); dot > 0 {
			dst = n.literal(segs[0][:dot]).suffixed(dst, method)
		}
		if n = n.literal(segs[0]); n == nil {
			return dst
		}
		segs = segs[1:]
	}
}

// suffix returns the index of the last dot of segs[0] if there is only one segment, and otherwise -1.
func suffix(segs []string) int {
	if len(segs) > 1 {
		return -1
	}
	return strings.LastIndexByte(segs[0], '.')
}

// suffixed appends the ids of the node's patterns that also match a path with a suffix.
func (n *node) suffixed(dst []int32, method string) []int32 {
	if n == nil {
		return dst
	}
	for _, list := range [...][]entry{n.below, n.here} {
		for _, e := range list {
			if !e.exact && e.takes(method) {
				dst = append(dst, e.id)
			}
		}
	}
	return dst
}

func (n *node) all(dst []int32, method string) []int32 {
	dst = appendIDs(appendIDs(dst, n.below, method), n.here, method)
	if n.wild != nil {
		dst = n.wild.all(dst, method)
	}
	for i := range n.few {
		dst = n.few[i].node.all(dst, method)
	}
	for _, c := range n.many {
		dst = c.all(dst, method)
	}
	return dst
}

func appendIDs(dst []int32, list []entry, method string) []int32 {
	for _, e := range list {
		if e.takes(method) {
			dst = append(dst, e.id)
		}
	}
	return dst
}

func (e *entry) takes(method string) bool {
	return e.method == "" || e.method == method || e.method == "GET" && method == "HEAD" || method == AnyMethod
}
