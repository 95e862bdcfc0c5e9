package policy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/policy/internal/paths"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// index finds the rules that may apply to a request without looking at the others. It
// hands out ids in the order of the document, one for each pattern of a rule, or one
// for a rule without patterns.
type index struct {
	byID       []matched // of each id, what is matched
	tree       pattern.Tree
	hosts      map[string][]int32 // rules without patterns, by host
	below      map[string][]int32 // the same for "*.example.com"
	headers    valueIndex         // the same without hosts, by header
	attributes valueIndex         // the same without headers, by attribute
	always     []int32            // and those that are left
	anyPath    bool               // there are patterns, so that paths have to be read
}

// valueIndex has rules by the value that they ask for of something with a name.
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
		for _, p := range r.match {
			x.tree.Add(p, int(x.id(r, p)), r.exempt)
			x.anyPath = true
		}
		if len(r.match) == 0 {
			x.addPathless(r, x.id(r, nil))
		}
	}
	return x
}

func (x *index) id(r *rule, p *pattern.Pattern) int32 {
	x.byID = append(x.byID, matched{r, p})
	return int32(len(x.byID) - 1)
}

// addPathless files a rule without patterns under what it asks for.
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

// pathless appends the ids of the rules without patterns that may apply.
func (x *index) pathless(dst []int32, s *scratch) []int32 {
	dst = append(dst, x.always...)
	if len(x.hosts)+len(x.below) > 0 {
		dst = append(dst, x.hosts[s.host()]...)
		for _, parent, found := strings.Cut(s.host(), "."); found; _, parent, found = strings.Cut(parent, ".") {
			dst = append(dst, x.below[parent]...)
		}
	}
	for i := range x.headers {
		for _, v := range s.request.Header[x.headers[i].name] {
			dst = append(dst, x.headers[i].byValue[strings.TrimSpace(v)]...)
		}
	}
	for i := range x.attributes {
		if v := s.request.Attributes[x.attributes[i].name]; v != "" {
			dst = append(dst, x.attributes[i].byValue[v]...)
		}
	}
	return dst
}

// matched is a rule that applies, and the first of its patterns that matches, or nil.
type matched struct {
	rule    *rule
	pattern *pattern.Pattern
}

// ambiguousPath is what a request lacks whose path has too many readings to follow. No
// honest client sends one, and all rules that have patterns would apply to it.
const ambiguousPath = unambiguous + "path"

// match sets s.matches to the rules that apply, in the order of the document. If one of
// them exempts the request it returns that rule.
func (s *scratch) match() (exempt *rule) {
	x := &s.policy.index
	s.ids = x.pathless(s.ids, s)
	if x.anyPath && !s.pathless {
		readings := paths.Readings(s.request.Path, s.policy.ignoreCase, &s.views)
		s.ends = append(s.ends, len(s.ids))
		for i := range readings {
			s.ambiguous = s.ambiguous || readings[i].Never
			s.ids = x.tree.Lookup(s.ids, s.request.Method, s.request.Host, &readings[i])
			s.ends = append(s.ends, len(s.ids))
		}
	}
	var last *rule
	for _, id := range s.ordered() {
		m := &x.byID[id]
		r := m.rule
		if r == last {
			continue
		}
		if last = r; r.asks && r.unmet(s) != "" {
			continue
		}
		switch {
		case r.block:
			s.barring = append(s.barring, r)
		case !r.exempt:
			if doubt := r.strict && len(r.match) > 0 && !s.everyView(r); doubt && r.isLenient() {
				s.pardoned = ambiguousPath
			} else if doubt {
				s.ambiguous = true
			}
			s.matches = append(s.matches, *m)
		case len(r.match) == 0 || s.everyView(r):
			return r
		}
	}
	if s.ambiguous {
		s.forgetShadows()
	}
	return nil
}

// ordered returns s.ids in the order of the document, in which they mostly are.
func (s *scratch) ordered() []int32 {
	if slices.IsSorted(s.ids) {
		return s.ids
	}
	s.order = append(s.order, s.ids...)
	slices.Sort(s.order)
	return s.order
}

// forgetShadows clears the doubt about a path where no rule with patterns can refuse for it: a
// shadow never does. Which of them apply is not known, so none is charged.
func (s *scratch) forgetShadows() {
	if slices.ContainsFunc(s.matches, func(m matched) bool { return m.pattern != nil && !m.rule.isLenient() }) {
		return
	}
	s.ambiguous = false
	all := len(s.matches)
	s.matches = slices.DeleteFunc(s.matches, func(m matched) bool { return m.pattern != nil })
	if len(s.matches) < all {
		s.pardoned = ambiguousPath
	}
}

// everyView reports whether the rule matches the path in every way to read it.
func (s *scratch) everyView(r *rule) bool {
	start := s.ends[0]
	for _, end := range s.ends[1:] {
		if !slices.ContainsFunc(s.ids[start:end], func(id int32) bool { return s.policy.index.byID[id].rule == r }) {
			return false
		}
		start = end
	}
	return true
}

// host returns the request's host as hosts are compared, if any rule asks for it.
func (s *scratch) host() string {
	if !s.hostKnown {
		s.hostKnown, s.hostName = true, pattern.Host(s.request.Host)
	}
	return s.hostName
}

// unmet says which condition other than its patterns the request does not meet, or "".
func (r *rule) unmet(s *scratch) string {
	if len(r.hosts) > 0 && !hostMatches(r.hosts, s.host()) {
		return "hosts"
	}
	for i := range r.headers {
		if !r.headers[i].matches(s.request.Header, r.exempt) {
			return r.headers[i].name
		}
	}
	for i := range r.attributes {
		if a := &r.attributes[i]; !a.matches(s.request.Attributes) {
			return a.text
		}
	}
	if r.asksForClient() {
		return r.unmetClient(s)
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

// matches reports whether the header has the value. Where it is there several times one
// of them is enough for a limit, but not for an exemption.
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
