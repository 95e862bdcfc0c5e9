package policy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/internal/adaptive"
	"github.com/sluicehq/sluice/policy/internal/paths"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// index finds the rules that may apply to a request, without a search through all rules. It assigns ids in the order
// of the document: one to each pattern of a rule, or one to a rule without patterns.
type index struct {
	byID []matched // the rule and the pattern of each id
	tree pattern.Tree

	// If a rule without patterns has hosts, each host is in hosts or, if it is like "*.example.com", in below. A rule
	// with neither patterns nor hosts is in headers if it requires a value of a header, else in attributes if it
	// requires a value of an attribute, else in always.
	hosts      map[string][]int32
	below      map[string][]int32 // by the domain, such as "example.com"
	headers    valueIndex
	attributes valueIndex
	always     []int32

	hasConditions bool      // some rules without patterns are not in always
	typed         []*rule   // the rules without patterns that count by the query or the body: see countsTyped
	anyPath       bool      // a rule has patterns, so that paths have to be read
	all           []matched // all rules, if each applies to every request; else nil
}

// valueIndex finds rules by a condition on a header or an attribute: by its name and value.
type valueIndex []namedIndex

type namedIndex struct {
	name    string
	byValue map[string][]int32
}

func newIndex(rules []rule, ignoreCase bool) index {
	x := index{tree: pattern.Tree{IgnoreCase: ignoreCase}, hosts: make(map[string][]int32), below: make(map[string][]int32)}
	for i := range rules {
		r := &rules[i]
		r.asks = len(r.hosts)+len(r.headers)+len(r.attributes)+len(r.clients)+len(r.notClients) > 0
		r.certain = !r.asks && !r.exempt && !r.block && (len(r.match) == 0 || !r.strict && r.class <= adaptive.Normal)
		for _, p := range r.match {
			x.tree.Add(p, int(x.id(r, p)), r.exempt)
			x.anyPath = true
		}
		if len(r.match) == 0 {
			x.addPathless(r, x.id(r, nil))
			if r.countsTyped() {
				x.typed = append(x.typed, r)
			}
		}
	}
	x.hasConditions = len(x.hosts)+len(x.below)+len(x.headers)+len(x.attributes) > 0
	if !slices.ContainsFunc(rules, func(r rule) bool { return !r.certain || len(r.match)+len(r.bodies) > 0 }) {
		x.all = x.byID
	}
	return x
}

func (x *index) id(r *rule, p *pattern.Pattern) int32 {
	x.byID = append(x.byID, matched{rule: r, pattern: p})
	return int32(len(x.byID) - 1)
}

// addPathless adds the id of a rule without patterns to the index.
func (x *index) addPathless(r *rule, id int32) {
	for _, h := range r.hosts {
		if name, wild := strings.CutPrefix(h, "*."); wild {
			x.below[name] = append(x.below[name], id)
		} else {
			x.hosts[h] = append(x.hosts[h], id)
		}
	}
	if len(r.hosts) > 0 {
		return
	}
	for _, h := range r.headers {
		if h.value != "" {
			x.headers.add(h.name, h.value, id)
			return
		}
	}
	for _, a := range r.attributes {
		if a.value != "" {
			x.attributes.add(a.name, a.value, id)
			return
		}
	}
	x.always = append(x.always, id)
}

func (x *valueIndex) add(name, value string, id int32) {
	i := slices.IndexFunc(*x, func(o namedIndex) bool { return o.name == name })
	if i < 0 {
		i = len(*x)
		*x = append(*x, namedIndex{name, make(map[string][]int32)})
	}
	of := (*x)[i].byValue
	of[value] = append(of[value], id)
}

// conditional appends the ids of the rules without patterns that may apply because of a host, header or attribute.
func (x *index) conditional(dst []int32, in *input) []int32 {
	if len(x.hosts)+len(x.below) > 0 {
		dst = append(dst, x.hosts[in.x.Host()]...)
		for _, parent, found := strings.Cut(in.x.Host(), "."); found; _, parent, found = strings.Cut(parent, ".") {
			dst = append(dst, x.below[parent]...)
		}
	}
	for i := range x.headers {
		for _, v := range in.request.Header[x.headers[i].name] {
			dst = append(dst, x.headers[i].byValue[strings.TrimSpace(v)]...)
		}
	}
	for i := range x.attributes {
		if v := in.request.Attributes[x.attributes[i].name]; v != "" {
			dst = append(dst, x.attributes[i].byValue[v]...)
		}
	}
	return dst
}

// matched is a rule, and the first of its patterns that matches. The pattern is nil if the rule has none. A path has
// several readings if servers may interpret it in different ways. A pattern may match only some of them.
type matched struct {
	rule      *rule
	pattern   *pattern.Pattern
	unclassed bool // the rule matches only some readings of the path, so its class does not apply to the request
}

// ambiguousPath is the Missing of a [Decision] if the path has too many readings, or if a rule that refuses ambiguous
// requests matches only some of the readings.
const ambiguousPath = unambiguous + "path"

// matches are the rules that apply to a request.
type matches struct {
	rules     []matched
	lent      bool    // rules is index.all
	exempting *rule   // the rule that exempts the request, or nil
	barring   []*rule // rules with "block" that apply
	ambiguous bool    // the path is ambiguous, and the request is denied for that
	doubtful  bool    // the path is ambiguous, but only shadows and rules with Enforce would deny the request for that
	pathless  bool    // rules with patterns are ignored
	lack      lack    // the part of the body because of which the request is denied: see lacks

	ids    []int32 // the ids of rules without patterns, then for each reading of the path the ids of matching patterns
	ends   []int   // where the ids of rules without patterns end, and where the ids for each reading end
	order  []int32 // see ordered
	buffer paths.Buffer
}

func (m *matches) reset() {
	if m.lent {
		m.rules, m.lent = nil, false
	}
	m.ids, m.ends, m.order, m.rules, m.barring = m.ids[:0], m.ends[:0], m.order[:0], m.rules[:0], m.barring[:0]
	m.exempting, m.ambiguous, m.doubtful, m.pathless, m.lack = nil, false, false, false, lack{}
}

// apply finds the rules that apply. It reports false if the request is exempt or blocked, so that the decision is
// complete.
func (w *work) apply(d *Decision) (undecided bool) {
	if w.policy.cors != nil && w.policy.exemptsPreflight(w) {
		d.Allowed, d.Exempt = true, true
		return false
	}
	if w.match(); w.matches.exempting != nil {
		d.Allowed, d.Exempt = true, true
		return false
	}
	if by := w.matches.barred(); by != nil {
		refuseBarred(d, by)
		return false
	}
	return true
}

// match finds the rules that apply, in the order of the document, up to the first that exempts the request. Of the
// conditions on the body, it checks only those of rules that exempt or block; matchBodies checks the others.
func (w *work) match() {
	m, x := &w.matches, &w.policy.index
	if x.all != nil {
		m.rules, m.lent = x.all, true
		return
	}
	m.pathless = m.pathless || w.request.NoPath
	m.ids = append(m.ids, x.always...)
	if x.hasConditions {
		m.ids = x.conditional(m.ids, &w.input)
	}
	if x.anyPath && !m.pathless {
		m.lookUp(&w.input)
	}
	var last *rule
	for _, id := range m.ordered() {
		one := &x.byID[id]
		r := one.rule
		switch {
		case r == last:
		case r.certain:
			m.rules = append(m.rules, *one)
		case r.asks && r.unmet(&w.input) != "":
		case r.block:
			if w.meetsBody(r) {
				m.barring = append(m.barring, r)
			}
		case !r.exempt:
			if r.strict && len(r.match) > 0 && !m.everyReading(r, x) {
				m.doubt(r)
			}
			m.rules = append(m.rules, *one)
			if r.class > adaptive.Normal && len(r.match) > 0 && !m.everyReading(r, x) {
				m.rules[len(m.rules)-1].unclassed = true
			}
		case (len(r.match) == 0 || m.everyReading(r, x)) && w.meetsBody(r):
			m.exempting = r
			return
		}
		last = r
	}
	if m.ambiguous {
		m.forgetShadows()
	}
}

// lookUp finds the patterns that match each reading of the path.
func (m *matches) lookUp(in *input) {
	method := pattern.Method(in.request.Method)
	readings := paths.Readings(in.request.Path, in.policy.ignoreCase, &m.buffer)
	m.ends = append(m.ends, len(m.ids))
	for i := range readings {
		m.ambiguous = m.ambiguous || readings[i].Never
		m.ids = in.policy.index.tree.Lookup(m.ids, method, in.request.Host, &readings[i])
		m.ends = append(m.ends, len(m.ids))
	}
}

// doubt notes that a rule matches some readings of the path, and not others.
func (m *matches) doubt(r *rule) {
	if r.isLenient() {
		m.doubtful = true
	} else {
		m.ambiguous = true
	}
}

// ordered returns the ids in the order of the document. Mostly they are in that order already.
func (m *matches) ordered() []int32 {
	if slices.IsSorted(m.ids) {
		return m.ids
	}
	m.order = append(m.order, m.ids...)
	slices.Sort(m.order)
	return m.order
}

// forgetShadows clears m.ambiguous if all rules with patterns are shadows or have Enforce, because such rules do not
// deny requests with an ambiguous path. It is unknown which of these rules apply. So forgetShadows removes them from
// m.rules, so that none is charged, and sets m.doubtful if there are any.
func (m *matches) forgetShadows() {
	if slices.ContainsFunc(m.rules, func(o matched) bool { return o.pattern != nil && !o.rule.isLenient() }) {
		return
	}
	m.ambiguous = false
	all := len(m.rules)
	m.rules = slices.DeleteFunc(m.rules, func(o matched) bool { return o.pattern != nil })
	m.doubtful = m.doubtful || len(m.rules) < all
}

// everyReading reports whether the rule matches every reading of the path.
func (m *matches) everyReading(r *rule, x *index) bool {
	start := m.ends[0]
	for _, end := range m.ends[1:] {
		if !slices.ContainsFunc(m.ids[start:end], func(id int32) bool { return x.byID[id].rule == r }) {
			return false
		}
		start = end
	}
	return true
}

// someReading reports whether a pattern of r matches at least one reading of the path.
func (m *matches) someReading(r *rule, x *index) bool {
	return slices.ContainsFunc(m.ids, func(id int32) bool { return x.byID[id].rule == r })
}

// unmet returns the first condition on the host, a header, an attribute or the client that the request does not meet,
// or "".
func (r *rule) unmet(in *input) string {
	if len(r.hosts) > 0 && !hostMatches(r.hosts, in.x.Host()) {
		return "hosts"
	}
	for i := range r.headers {
		if !r.headers[i].matches(in.request.Header, r.exempt) {
			return r.headers[i].name
		}
	}
	for i := range r.attributes {
		if a := &r.attributes[i]; !a.matches(in.request.Attributes) {
			return a.text
		}
	}
	if r.asksForClient() {
		return r.unmetClient(in)
	}
	return ""
}

func hostMatches(hosts []string, host string) bool {
	for _, h := range hosts {
		if h == host {
			return true
		}
		if h[0] == '*' && strings.HasSuffix(host, h[1:]) {
			return true
		}
	}
	return false
}

// matches reports whether the header has the value. If the header has several values, one match is enough for a
// limit. For an exemption, all is set, and every value has to match.
func (h *headerCondition) matches(header http.Header, all bool) bool {
	values := header[h.name]
	if h.value == "" {
		return len(values) > 0
	}
	n := 0
	for _, v := range values {
		if strings.TrimSpace(v) == h.value {
			n++
		}
	}
	return n > 0 && (!all || n == len(values))
}
