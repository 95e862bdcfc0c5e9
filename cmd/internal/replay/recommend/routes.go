package recommend

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	maxSegments  = 16   // paths with more segments belong to no route
	maxLiteral   = 64   // bytes; longer segments become wildcards
	fewChildren  = 12   // if a node has more rare children, they become a wildcard
	maxRoutes    = 20   // the maximum number of routes with limits of their own
	leastShare   = 0.01 // the fraction of all requests that a route needs for a limit of its own
	rareShare    = 0.005
	defaultNodes = 1 << 16
)

// routes learns which paths belong to one route. It is a tree of the segments of paths. A segment that looks like
// an identifier immediately becomes a wildcard. Rare segments become wildcards when the tree is full, and at the end.
// So the number of nodes is bounded, and a path with a hundredth of all requests is never lost in a flood of other
// paths (lossy counting, Manku and Motwani 2002).
type routes struct {
	root     node
	nodes    int
	requests int64
	room     int // maximum number of nodes
}

type node struct {
	children map[string]*node // by segment; the key wild has the wildcard
	ids      int64            // the number of requests with an identifier in place of the wildcard
	ends     counts           // the requests with paths that end here
}

// wild is the key of the wildcard, which no segment equals. The rest of a path after an identifier or a rare
// segment is below the wildcard.
const wild = ""

// counts has numbers of requests by method.
type counts [len(methods)]int64

func (c *counts) add(o counts) {
	for m, n := range o {
		c[m] += n
	}
}

// methods are the methods that distinguish routes. A pattern with GET matches HEAD as well.
var methods = [...]string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

func methodIndex(method string) int {
	if method == "" || method == "HEAD" {
		return 0
	}
	return slices.Index(methods[:], method)
}

// pathOf returns the path of a target, which may be absolute and have a query.
func pathOf(target string) string {
	if i := strings.Index(target, "://"); i > 0 && !strings.Contains(target[:i], "/") {
		target = target[i+3:]
		target = target[max(0, strings.IndexByte(target, '/')):]
	}
	if i := strings.IndexAny(target, "?#"); i >= 0 {
		target = target[:i]
	}
	return target
}

// note counts a request.
func (t *routes) note(method, target string) {
	m := methodIndex(method)
	path := pathOf(target)
	t.requests++
	if m < 0 || path == "" || path[0] != '/' {
		return
	}
	if static(path) {
		return
	}
	n := &t.root
	for rest, depth := path[1:], 0; rest != ""; {
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		switch {
		case segment == "":
			continue
		case segment == "." || segment == "..":
			return // servers disagree about what such a path means
		case depth == maxSegments:
			return
		}
		n = t.child(n, segment)
		depth++
	}
	n.ends[m]++
	if t.room == 0 {
		t.room = defaultNodes
	}
	if t.nodes > t.room {
		t.prune()
	}
}

// files has the extensions of files that are parts of pages. They are loaded with the pages, and need no limits of
// their own.
var files = []string{".css", ".js", ".map", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".ico", ".webp", ".avif", ".woff", ".woff2", ".ttf"}

func static(path string) bool {
	return slices.ContainsFunc(files, func(end string) bool { return strings.HasSuffix(path, end) })
}

func (t *routes) child(n *node, segment string) *node {
	if c := n.children[segment]; c != nil {
		return c
	}
	if id := identifies(segment); id || !plain(segment) {
		if id {
			n.ids++
		}
		if segment = wild; n.children[wild] != nil {
			return n.children[wild]
		}
	}
	t.nodes++
	c := new(node)
	n.set(strings.Clone(segment), c)
	return c
}

const digitBytes = "0123456789"

// identifies reports whether a segment looks like an identifier: a number, a date, a UUID, a hash or a mail address.
func identifies(s string) bool {
	return strings.Contains(s, "@") || strings.Trim(s, digitBytes) == "" ||
		len(s) >= 8 && strings.ContainsAny(s, digitBytes) && strings.Trim(s, digitBytes+"abcdefABCDEF-") == ""
}

// plain reports whether a segment can be a literal in a pattern. Other segments could have a special meaning there,
// or servers could read them in several ways.
func plain(s string) bool {
	return len(s) <= maxLiteral && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-._"+digitBytes) == ""
}

func (n *node) set(segment string, c *node) {
	if n.children == nil {
		n.children = map[string]*node{}
	}
	n.children[segment] = c
}

// total returns the numbers of requests that end at n or below it.
func (n *node) total() counts {
	sum := n.ends
	for _, c := range n.children {
		sum.add(c.total())
	}
	return sum
}

// count returns the number of requests of all methods.
func (n *node) count() (sum int64) {
	for _, c := range n.total() {
		sum += c
	}
	return sum
}

func (n *node) size() int {
	size := 1
	for _, c := range n.children {
		size += c.size()
	}
	return size
}

// absorb adds the counts and the children of o.
func (n *node) absorb(o *node) {
	n.ends.add(o.ends)
	n.ids += o.ids
	for segment, c := range o.children {
		n.join(segment, c)
	}
}

// join adds the child c. If n already has a child for the segment, join adds the contents of c to that child.
func (n *node) join(segment string, c *node) {
	if mine := n.children[segment]; mine != nil {
		mine.absorb(c)
	} else {
		n.set(segment, c)
	}
}

// merge changes n and all nodes below it. Children of a node that have fewer than minRequests requests are rare. If a
// node has more than maxRare rare children, merge joins them into the wildcard.
func (n *node) merge(minRequests int64, maxRare int) {
	var rare []string
	for segment, c := range n.children {
		if segment != wild && c.count() < minRequests {
			rare = append(rare, segment)
		}
	}
	if len(rare) > maxRare {
		slices.Sort(rare) // so that a log always has the same result
		for _, segment := range rare {
			n.join(wild, n.children[segment])
			delete(n.children, segment)
		}
	}
	for _, c := range n.children {
		c.merge(minRequests, maxRare)
	}
}

// prune merges rare segments until the number of nodes is at most half of its maximum. This happens at the latest
// when only one path of wildcards is left.
func (t *routes) prune() {
	for least := max(2, t.requests/10_000); t.nodes > t.room/2; least *= 2 {
		t.root.merge(least, 0)
		t.nodes = t.root.size()
	}
}

// route is a group of paths.
type route struct {
	pattern  string // a pattern of net/http.ServeMux
	requests int64  // the requests in the log
}

// groups returns the routes that have enough requests for a limit of their own, the busiest first. Their patterns
// do not conflict in one http.ServeMux.
func (t *routes) groups() []route {
	t.root.merge(max(2, int64(rareShare*float64(t.requests))), fewChildren)
	least := max(2, int64(leastShare*float64(t.requests)))
	var all []route
	t.root.collect(nil, least, &all)
	slices.SortFunc(all, func(a, b route) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), strings.Compare(a.pattern, b.pattern))
	})
	mux := http.NewServeMux()
	var kept []route
	for _, r := range all {
		if len(kept) < maxRoutes && register(mux, r.pattern) {
			kept = append(kept, r)
		}
	}
	return kept
}

// register adds a pattern to mux. It reports whether the pattern is valid and does not conflict with others.
func register(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(pattern, http.NotFoundHandler())
	return true
}

// collect adds the routes below n, and a route for the requests below n that are in none of these routes.
func (n *node) collect(segments []string, least int64, all *[]route) {
	var rest counts
	add := func(suffix string, of counts) {
		for m, c := range of {
			if c >= least {
				*all = append(*all, route{methods[m] + " /" + strings.Join(segments, "/") + suffix, c})
			}
		}
	}
	for segment, c := range n.children {
		if c.count() < least {
			rest.add(c.total())
			continue
		}
		if segment == wild {
			segment = n.wildcard(segments)
		}
		c.collect(append(slices.Clip(segments), segment), least, all)
	}
	if len(segments) == 0 {
		add("{$}", n.ends)
		return
	}
	add("", n.ends)
	add("/{rest...}", rest)
}

// wildcard returns a wildcard segment for a pattern, with a name that no other segment has.
func (n *node) wildcard(segments []string) string {
	name := "name"
	if 2*n.ids >= n.children[wild].count() {
		name = "id"
	}
	if k := strings.Count(strings.Join(segments, ""), "{"); k > 0 {
		name += strconv.Itoa(k + 1)
	}
	return "{" + name + "}"
}

var notInName = regexp.MustCompile(`[^a-z0-9._]+`)

// ruleName returns an unused name for the rule of a pattern, and adds the name to taken.
func ruleName(pattern string, taken map[string]bool) string {
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(pattern), "-"), "-.")
	if len(name) > 56 {
		name = strings.Trim(name[:56], "-.")
	}
	if !strings.Contains(name, "-") {
		name += "-root"
	}
	unique := name
	for i := 2; taken[unique]; i++ {
		unique = name + "-" + strconv.Itoa(i)
	}
	taken[unique] = true
	return unique
}
