package rls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const (
	maxDepth = 32
	// maxNodes bounds the nodes of a document, because aliases can make a small file large.
	maxNodes = 1 << 20
)

// File is a file of a configuration.
type File struct {
	Name string
	Data []byte
}

// ReadDir reads the files of a configuration: the .yaml and .yml files of a directory, ordered by name.
func ReadDir(dir string) (files []File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		ending := filepath.Ext(e.Name())
		if strings.HasPrefix(e.Name(), ".") || ending != ".yaml" && ending != ".yml" {
			continue
		}
		name := filepath.Join(dir, e.Name())
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // reading a pipe could block forever
			return nil, fmt.Errorf("%s: not a regular file: rename it, or move it elsewhere", name)
		}
		data, err := policyfile.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, File{name, data})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: the directory has no .yaml file", dir)
	}
	return files, nil
}

// Read reads a configuration of envoyproxy/ratelimit. algorithm is the algorithm of limits that do not name one.
// The error is a [policy.Errors] with all mistakes.
func Read(files []File, algorithm sluice.Algorithm) (*Limits, error) {
	r := &reader{limits: &Limits{domains: make(map[string]*node)}, algorithm: algorithm}
	for _, f := range files {
		before := len(r.problems)
		r.read(f)
		slices.SortStableFunc(r.problems[before:], func(a, b policy.Problem) int { return a.Line - b.Line })
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	r.limits.document(algorithm)
	return r.limits, nil
}

// reader reads a configuration, and collects all problems.
type reader struct {
	limits    *Limits
	algorithm sluice.Algorithm
	file      string
	nodes     int
	problems  policy.Errors
}

func (r *reader) fail(line int, hint, format string, args ...any) {
	r.problems = append(r.problems, policy.Problem{File: r.file, Line: line, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (r *reader) read(f File) {
	r.file, r.nodes = f.Name, 0
	if len(f.Data) > policyfile.MaxDocument {
		r.fail(1, "split it", "the file has more than %d bytes", policyfile.MaxDocument)
		return
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		r.fail(1, "start it with \"domain: …\"", "the file is empty")
	case err != nil:
		r.problems = append(r.problems, policyfile.YAMLProblem(f.Name, f.Data, err))
	case dec.Decode(&more) == nil:
		r.fail(more.Line, "put it into a file of its own", "the file has a second document")
	case r.small(&doc, 0):
		r.root(doc.Content[0])
	}
}

// small reports whether a document has at most maxNodes nodes, including the nodes of aliases.
func (r *reader) small(n *yaml.Node, depth int) bool {
	if r.nodes++; r.nodes > maxNodes || depth > 4*maxDepth {
		r.fail(max(n.Line, 1), "split it, or nest less deeply", "the document is too large or too deep")
		return false
	}
	if n.Kind == yaml.AliasNode {
		return r.small(n.Alias, depth+1)
	}
	for _, c := range n.Content {
		if !r.small(c, depth+1) {
			return false
		}
	}
	return true
}

// member is a key of a mapping.
type member struct {
	key  string
	read func(*yaml.Node)
}

// mapping reads a mapping. It reports keys other than those of members as errors.
func (r *reader) mapping(n *yaml.Node, what string, members []member) {
	if n = follow(n); n.Kind != yaml.MappingNode {
		r.fail(n.Line, "write \"name: value\" lines", "%s is %s, and must be a mapping", what, kindOf(n))
		return
	}
	seen := make(map[string]bool)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := follow(n.Content[i]), follow(n.Content[i+1])
		at := slices.IndexFunc(members, func(m member) bool { return m.key == key.Value })
		switch {
		case at < 0 || key.Kind != yaml.ScalarNode:
			r.fail(key.Line, "it may have "+namesOf(members), "unknown key %.60q in %s", key.Value, what)
		case seen[key.Value]:
			r.fail(key.Line, "remove one of them", "%s occurs twice", key.Value)
		case value.Tag == "!!null" && value.Kind == yaml.ScalarNode: // null is treated as missing
		default:
			members[at].read(value)
		}
		seen[key.Value] = true
	}
}

func follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func namesOf(members []member) string {
	var names []string
	for _, m := range members {
		names = append(names, m.key)
	}
	return strings.Join(names, ", ")
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return "a single value"
}

func (r *reader) items(n *yaml.Node, what string, read func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n.Line, "write lines that start with \"- \"", "%s is %s, and must be a list", what, kindOf(n))
		return
	}
	for _, item := range n.Content {
		read(follow(item))
	}
}

func (r *reader) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode {
		r.fail(n.Line, "write one value", "%s is %s, and must be a single value", what, kindOf(n))
		return ""
	}
	return n.Value
}

func (r *reader) boolean(n *yaml.Node, what string) bool {
	var b bool
	if n.Kind != yaml.ScalarNode || n.Decode(&b) != nil {
		r.fail(n.Line, "write true or false", "%s is %.40q", what, n.Value)
	}
	return b
}

// count reads a whole number that is not larger than the maximum. A number such as 010 is an error, because YAML would
// change it.
func (r *reader) count(n *yaml.Node, what string, maximum uint64) uint64 {
	text := r.text(n, what)
	v, err := strconv.ParseUint(text, 10, 64)
	if n.Kind == yaml.ScalarNode && (err != nil || v > maximum || len(text) > 1 && text[0] == '0') {
		r.fail(n.Line, fmt.Sprintf("write a whole number of at most %d, without leading zeros", maximum), "%s is %.40q", what, text)
		return 0
	}
	return v
}

func (r *reader) root(n *yaml.Node) {
	domain, descriptors := "", (*yaml.Node)(nil)
	r.mapping(n, "the file", []member{
		{"domain", func(n *yaml.Node) { domain = r.text(n, "domain") }},
		{"descriptors", func(n *yaml.Node) { descriptors = n }},
	})
	if domain == "" {
		r.fail(n.Line, "write \"domain: …\", with the domain in Envoy's configuration", "the file has no domain")
		return
	}
	of := r.limits.domains[domain]
	if of == nil {
		of = &node{place: place{r.file, n.Line}}
		r.limits.domains[domain] = of
	}
	if descriptors != nil {
		r.descriptors(descriptors, of, []step{{key: domain}})
	}
}

// descriptors reads the list of descriptors below a node. steps is the path to the node, starting with the domain.
func (r *reader) descriptors(n *yaml.Node, parent *node, steps []step) {
	if len(steps) > maxDepth {
		r.fail(n.Line, "nest less deeply: Envoy sends descriptors with few entries", "descriptors are nested more than %d levels deep", maxDepth)
		return
	}
	r.items(n, "descriptors", func(n *yaml.Node) { r.descriptor(n, parent, steps) })
}

// written is a descriptor as written in the file.
type written struct {
	key, value            string
	rateLimit             *yaml.Node
	descriptors, metadata *yaml.Node
	shadow, quota, shared bool
}

func (r *reader) descriptor(n *yaml.Node, parent *node, steps []step) {
	var w written
	r.mapping(n, "a descriptor", []member{
		{"key", func(n *yaml.Node) { w.key = r.text(n, "key") }},
		{"value", func(n *yaml.Node) { w.value = r.text(n, "value") }},
		{"rate_limit", func(n *yaml.Node) { w.rateLimit = n }},
		{"descriptors", func(n *yaml.Node) { w.descriptors = n }},
		{"shadow_mode", func(n *yaml.Node) { w.shadow = r.boolean(n, "shadow_mode") }},
		{"quota_mode", func(n *yaml.Node) { w.quota = r.boolean(n, "quota_mode") }},
		// These two settings select metrics of envoyproxy/ratelimit. They do not affect decisions.
		{"detailed_metric", func(n *yaml.Node) { r.boolean(n, "detailed_metric") }},
		{"value_to_metric", func(n *yaml.Node) { r.boolean(n, "value_to_metric") }},
		{"share_threshold", func(n *yaml.Node) { w.shared = r.boolean(n, "share_threshold") }},
		{"metadata", func(n *yaml.Node) { w.metadata = n }},
	})
	switch {
	case n.Kind != yaml.MappingNode: // mapping has reported this
		return
	case w.key == "":
		r.fail(n.Line, "write \"key: …\"", "the descriptor has no key")
		return
	case strings.Contains(w.key, "*"):
		r.fail(n.Line, "write the wildcard into the value", "the key %.60q contains a wildcard", w.key)
		return
	case w.shared && !strings.Contains(w.value, "*"):
		r.fail(n.Line, "write a value with *, or omit share_threshold", "share_threshold needs a descriptor with a wildcard")
	}
	s := step{key: w.key, value: w.value, shared: w.shared}
	child := r.add(n, parent, &s)
	if child == nil {
		return
	}
	way := append(slices.Clip(steps), s)
	if w.rateLimit != nil {
		child.limit = r.rateLimit(&w, way)
	} else if w.metadata != nil {
		r.settings(w.metadata) // only reports errors in the settings
	}
	if w.descriptors != nil {
		r.descriptors(w.descriptors, child, way)
	}
}

// add adds a node below parent.
func (r *reader) add(n *yaml.Node, parent *node, s *step) *node {
	if parent.children == nil {
		parent.children = make(map[string]*level)
	}
	of := parent.children[s.key]
	if of == nil {
		of = &level{exact: make(map[string]*node)}
		parent.children[s.key] = of
	}
	child := &node{place: place{r.file, n.Line}}
	first := of.exact[s.value]
	switch {
	case s.value == "":
		first, s.kind = of.plain, plainStep
	case strings.Contains(s.value, "*"):
		s.kind = wildcardStep
		if at := slices.IndexFunc(of.wildcards, func(w wildcard) bool { return w.pattern == s.value }); at >= 0 {
			first = of.wildcards[at].node
		}
	default:
		s.kind = exactStep
	}
	if first != nil {
		r.fail(n.Line, fmt.Sprintf("the first is at %s:%d", first.place.file, first.place.line), "two descriptors have the key %.60q and the value %.60q", s.key, s.value)
		return nil
	}
	switch s.kind {
	case plainStep:
		of.plain = child
	case wildcardStep:
		of.wildcards = append(of.wildcards, wildcard{s.value, s.shared, child})
	default:
		of.exact[s.value] = child
		of.values = append(of.values, s.value)
	}
	return child
}

func (r *reader) rateLimit(w *written, steps []step) *limit {
	n := w.rateLimit
	l := &limit{place: place{r.file, n.Line}, steps: steps, shadow: w.shadow, quota: w.quota}
	name := ""
	r.mapping(n, "rate_limit", []member{
		{"unit", func(n *yaml.Node) { name = r.text(n, "unit") }},
		{"requests_per_unit", func(n *yaml.Node) { l.requests = uint32(r.count(n, "requests_per_unit", math.MaxUint32)) }},
		{"unlimited", func(n *yaml.Node) { l.unlimited = r.boolean(n, "unlimited") }},
		{"name", func(n *yaml.Node) { l.name = r.text(n, "name") }},
		{"replaces", func(n *yaml.Node) {
			r.items(n, "replaces", func(n *yaml.Node) { l.replaces = append(l.replaces, r.replaced(n)) })
		}},
	})
	if n.Kind != yaml.MappingNode {
		return nil
	}
	switch l.unit = unitNamed(name); {
	case l.unlimited && l.unit != 0:
		r.fail(n.Line, "omit one of them", "unlimited cannot have a unit")
	case !l.unlimited && l.unit == 0:
		r.fail(n.Line, "write second, minute, hour, day, week, month or year", "unit is %.40q", name)
	}
	if l.name != "" && slices.Contains(l.replaces, l.name) {
		r.fail(n.Line, "name another limit, or omit replaces", "the limit %.60q replaces itself", l.name)
	}
	if w.metadata != nil {
		l.own, l.metadata = r.settings(w.metadata), r.free(w.metadata)
	}
	if l.own.burst > 0 && !r.bursts(l) {
		r.fail(n.Line, "add \"algorithm: token_bucket\", or omit burst", "metadata.sluice.burst does not apply to the algorithm of the limit")
	}
	r.limits.limits = append(r.limits.limits, l)
	return l
}

// bursts reports whether the algorithm of a limit can have a burst.
func (r *reader) bursts(l *limit) bool {
	a := r.algorithm
	if named, err := sluice.ParseAlgorithm(l.own.algorithm); err == nil {
		a = named
	}
	return a == sluice.TokenBucket || a == sluice.LeakyBucket || a == sluice.GCRA
}

func (r *reader) replaced(n *yaml.Node) (name string) {
	r.mapping(n, "an entry of replaces", []member{{"name", func(n *yaml.Node) { name = r.text(n, "name") }}})
	if name == "" && n.Kind == yaml.MappingNode {
		r.fail(n.Line, "write \"name: …\"", "the entry of replaces has no name")
	}
	return name
}

// settings reads Sluice's settings in metadata. Other metadata may have any form.
func (r *reader) settings(n *yaml.Node) (s settings) {
	if n.Kind != yaml.MappingNode {
		r.fail(n.Line, "write \"name: value\" lines", "metadata is %s, and must be a mapping", kindOf(n))
		return s
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == "sluice" {
			r.own(follow(n.Content[i+1]), &s)
		}
	}
	return s
}

func (r *reader) own(n *yaml.Node, s *settings) {
	r.mapping(n, "metadata.sluice", []member{
		{"algorithm", func(n *yaml.Node) {
			s.algorithm = r.text(n, "algorithm")
			if _, err := sluice.ParseAlgorithm(s.algorithm); err != nil {
				r.fail(n.Line, "", "%v", err)
			}
		}},
		{"burst", func(n *yaml.Node) {
			if s.burst = int64(r.count(n, "burst", math.MaxUint32)); s.burst == 0 {
				r.fail(n.Line, "omit it, or write at least 1", "burst is 0")
			}
		}},
		{"on_error", func(n *yaml.Node) {
			s.onError = r.text(n, "on_error")
			if _, err := sluice.ParseOnError(s.onError); err != nil {
				r.fail(n.Line, "", "%v", err)
			}
		}},
	})
}

// free reads a value of any form, and returns the value that encoding/json would decode.
func (r *reader) free(n *yaml.Node) any {
	switch n = follow(n); n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for i := 0; i < len(n.Content); i += 2 {
			m[follow(n.Content[i]).Value] = r.free(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			list = append(list, r.free(item))
		}
		return list
	}
	return scalar(n)
}

func scalar(n *yaml.Node) any {
	var b bool
	var f float64
	switch {
	case n.Tag == "!!null":
		return nil
	case n.Tag == "!!bool" && n.Decode(&b) == nil:
		return b
	case (n.Tag == "!!int" || n.Tag == "!!float") && n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0):
		return f
	}
	return n.Value
}
