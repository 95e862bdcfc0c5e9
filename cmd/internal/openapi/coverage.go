package openapi

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Coverage compares the rules of a policy with the operations of a document.
type Coverage struct {
	Operations int
	// Unmet has the operations to which no rule applies, whatever the headers, the body and the client.
	Unmet []*Operation
	// General has the operations to which only rules without patterns and hosts apply.
	General []*Operation
	// Weak has the operations to which only weak rules apply. A weak rule limits no requests, or only some of them.
	// A rule is weak if it is in shadow mode, if it only marks, exempts or classifies requests, if it is enforced for
	// less than 100 % of its subjects, or if it has conditions on headers, attributes, the body or the client. If the
	// whole policy is in shadow mode, all rules are weak.
	Weak []*Operation
	// Idle has the rules with patterns or hosts that apply to no operation.
	Idle []string
}

// Cover compares a policy with a document.
func Cover(rules *policy.Document, d *Document) (*Coverage, error) {
	m, err := newMatcher(rules, d)
	if err != nil {
		return nil, err
	}
	c, met := &Coverage{Operations: len(d.Operations)}, map[string]bool{}
	for i := range d.Operations {
		o := &d.Operations[i]
		found := m.rules(o)
		switch {
		case len(found) > 0:
		case m.everywhere:
			c.General = append(c.General, o)
		default:
			c.Unmet = append(c.Unmet, o)
		}
		if (len(found) > 0 || m.everywhere) && !m.firmly && !slices.ContainsFunc(found, func(name string) bool { return m.firm[name] }) {
			c.Weak = append(c.Weak, o)
		}
		for _, name := range found {
			met[name] = true
		}
	}
	for _, name := range m.names {
		if !met[name] {
			c.Idle = append(c.Idle, name)
		}
	}
	return c, nil
}

// matcher finds the rules with patterns and hosts that match an operation. Its engine has copies of the rules with
// patterns or hosts. The copies have no other conditions.
type matcher struct {
	engine     *policy.Engine
	names      []string
	hosts      []string        // the hosts in rules, and ""
	everywhere bool            // some rule has neither patterns nor hosts
	firmly     bool            // one of the rules without patterns and hosts is not weak
	firm       map[string]bool // the rules that are not weak, by name
}

func newMatcher(doc *policy.Document, d *Document) (*matcher, error) {
	m := &matcher{hosts: []string{""}, firm: map[string]bool{}}
	only := policy.Document{IgnoreCase: doc.IgnoreCase, Shadow: doc.Shadow}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		m.firm[r.Name] = isFirm(r)
		if len(r.Match)+len(r.Hosts) == 0 {
			m.everywhere, m.firmly = true, m.firmly || isFirm(r)
			continue
		}
		only.Rules = append(only.Rules, policy.Rule{Name: r.Name, Match: r.Match, Hosts: r.Hosts, Limit: "1000000/second"})
		m.names = append(m.names, r.Name)
		m.addHosts(r)
	}
	p, err := policy.Compile(only)
	if err != nil {
		return nil, err
	}
	m.engine = policy.NewEngine(memory.New(), p)
	if m.engine.Policy().WatchOnly() {
		m.firmly, m.firm = false, nil
	}
	return m, nil
}

// isFirm reports whether a rule is not weak.
func isFirm(r *policy.Rule) bool {
	enforced, _ := strconv.ParseFloat(strings.TrimSuffix(cmp.Or(r.Enforce, "100%"), "%"), 64)
	return !r.Shadow && !r.Exempt && !r.OnlyClassifies() && r.Over != "mark" && enforced == 100 &&
		len(r.Headers)+len(r.Attributes)+len(r.Body)+len(r.Clients)+len(r.NotClients) == 0
}

// addHosts adds the hosts of a rule. They are tried for operations without a host in the document.
func (m *matcher) addHosts(r *policy.Rule) {
	for _, h := range r.Hosts {
		if name, wild := strings.CutPrefix(h, "*."); wild {
			h = "any." + name
		}
		m.hosts = append(m.hosts, h)
	}
	for _, p := range r.Match {
		if h, _, _ := strings.Cut(p[strings.LastIndexAny(p, " \t")+1:], "/"); h != "" {
			m.hosts = append(m.hosts, h)
		}
	}
	slices.Sort(m.hosts)
	m.hosts = slices.Compact(m.hosts)
}

// rules returns the names of the rules that apply to an operation on any of its servers.
func (m *matcher) rules(o *Operation) (all []string) {
	for _, b := range o.bases {
		hosts := []string{b.host}
		if b.host == "" {
			hosts = m.hosts
		}
		for _, host := range hosts {
			d := m.engine.Decide(context.Background(), &policy.Request{Method: o.Method, Host: host, Path: o.path(b.path)})
			for _, r := range d.Results {
				all = appendNew(all, r.Rule)
			}
		}
	}
	return all
}
