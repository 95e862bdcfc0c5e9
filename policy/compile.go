package policy

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
)

// Policy is a compiled policy document. It is never changed and may be shared.
type Policy struct {
	file       string
	trusted    []netip.Prefix
	trustLine  int
	ipv6Prefix int
	ignoreCase bool
	tierFrom   *part  // nil: there are no tiers
	tier       string // where tierFrom says none
	tierLine   int
	rules      []rule
	index      index
	reads      map[string]bool // see Reads
	cors       *CORS
	warnings   []Problem
}

// rule is a rule as the engine needs it.
type rule struct {
	name      string
	match     []*pattern
	hosts     []string
	headers   []headerDoc
	key       []part
	together  []int // which parts of key are the hash tag
	missing   missing
	strict    bool // refuse what is ambiguous
	readsBody bool
	own       source
	tiers     map[string]*source
	overrides []overrides
	cost      cost
	onError   sluice.OnError
	shadow    bool
	exempt    bool
	line      int
}

// source is a limit and where it comes from: "rule", "tier:pro" or "override".
type source struct {
	plan *sluice.Plan
	from string
}

// overrides are those of a rule that name the same parts of its key.
type overrides struct {
	exact     uint32 // bit i: part i of the key is named, and not "*"
	bySubject map[string]*override
}

type override struct {
	source
	until time.Time // zero: for ever
	line  int
}

// maxKeyParts keeps keys short enough to be looked up and to be read.
const maxKeyParts = 8

// Parse compiles a document; file is its name in messages. The error is an [Errors]
// that lists what is wrong.
func Parse(file string, data []byte) (*Policy, error) {
	c := &compiler{decoder: decoder{file: file}, plans: make(map[sluice.Limit]*sluice.Plan), names: make(map[string]int)}
	var p *Policy
	if root := c.root(data); root != nil {
		doc := c.document(root)
		p = c.compile(doc)
	}
	if len(c.problems) > 0 {
		sortProblems(c.problems)
		return nil, c.problems.first(maxErrors)
	}
	p.warnings = p.suspicions(file)
	return p, nil
}

// Load reads and compiles the document in a file.
func Load(path string) (*Policy, error) {
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

// Warnings returns what is legal in the document and probably not meant, in the order
// of its lines.
func (p *Policy) Warnings() []Problem { return slices.Clone(p.warnings) }

// TrustedProxies returns the document's trusted_proxies: whose forwarded headers may be
// believed. None are by default.
func (p *Policy) TrustedProxies() []netip.Prefix { return slices.Clone(p.trusted) }

// compiler checks how the parts of a document fit together.
type compiler struct {
	decoder
	plans map[sluice.Limit]*sluice.Plan
	names map[string]int // the index of each rule
}

func (c *compiler) compile(doc *document) *Policy {
	p := &Policy{
		file:       c.file,
		trusted:    doc.trusted.value,
		trustLine:  doc.trusted.line,
		ipv6Prefix: doc.ipv6Prefix,
		ignoreCase: doc.ignoreCase,
		tierFrom:   doc.tiers.from,
		tier:       doc.tiers.canonical(doc.tiers.fallback),
		tierLine:   doc.tiers.line,
		rules:      make([]rule, len(doc.rules)),
		reads:      fieldsOf(doc),
		cors:       doc.cors,
	}
	if p.tierFrom != nil && p.tierFrom.String() == "route" {
		c.fail(doc.tiers.line, "use what the request says of the subject, for example header:X-Plan", "tiers.from cannot be route")
	}
	for i := range doc.rules {
		c.rule = doc.rules[i].name
		c.checkUnique(&doc.rules[i], doc, i)
		p.rules[i] = c.compileRule(doc, &doc.rules[i])
	}
	c.rule = ""
	for i := range doc.overrides {
		c.override(p, doc, &doc.overrides[i])
	}
	c.rule = ""
	if len(c.problems) == 0 {
		p.index = newIndex(p.rules, p.ignoreCase)
		if p.cors != nil {
			p.cors.typed = newTyped(p.rules, p.ignoreCase)
		}
	}
	return p
}

func (c *compiler) checkUnique(r *ruleDoc, doc *document, i int) {
	if r.name == "" {
		if _, written := r.written["name"]; !written && !r.unreadable {
			c.fail(r.line, "write \"name: …\": keys and answers carry it", "the rule has no name")
		}
		return
	}
	if first, twice := c.names[r.name]; twice {
		c.fail(r.line, "give it another name", "there are two rules of this name, the first in line %d", doc.rules[first].line)
		return
	}
	c.names[r.name] = i
}

func (c *compiler) compileRule(doc *document, r *ruleDoc) rule {
	out := rule{
		name: r.name, match: r.match, hosts: r.hosts, headers: r.headers, key: r.key,
		missing: r.missing, cost: r.cost, onError: r.onError, shadow: r.shadow, exempt: r.exempt, line: r.line,
	}
	if r.exempt {
		c.checkExempt(r)
		return out
	}
	if _, written := r.written["on_error"]; !written {
		out.onError = defaultOnError(r.hosts, r.match, r.shadow)
	}
	out.strict = !r.shadow && cmp.Or(r.ambiguous, doc.ambiguous, defaultAmbiguous(r.key)) == refuseAmbiguous
	if _, written := r.written["limit"]; !written && !r.unreadable {
		c.fail(r.line, "write for example \"limit: 100/minute\", or \"exempt: true\"", "the rule has no limit")
	}
	out.own = source{c.plan(r.limit.line, r.limit.value, r), "rule"}
	if len(r.tiers) > 0 {
		out.tiers = make(map[string]*source, len(r.tiers))
	}
	for _, t := range r.tiers {
		name := doc.tiers.canonical(t.name)
		if same := out.tiers[name]; same != nil {
			c.fail(t.line, "keep one of them", "no request can tell the tier %s from another of the rule", quote(t.name))
		}
		out.tiers[name] = &source{c.plan(t.line, t.limit, r), "tier:" + t.name}
	}
	if len(r.tiers) > 0 && doc.tiers.line == 0 {
		c.fail(r.written["tiers"], "write for example \"tiers: {from: header:X-Plan}\" at the top of the document", "nothing says where a request's tier is to be found")
	}
	if len(r.key) > maxKeyParts {
		c.fail(r.written["key"], "", "key has %d parts, and %d are the most", len(r.key), maxKeyParts)
	}
	if hasPart(r.key, "route") && len(r.match) == 0 {
		c.fail(r.written["key"], "name the routes under match, or use host or method", "the part \"route\" needs a rule with match")
	}
	out.together = c.together(r)
	out.readsBody = slices.ContainsFunc(r.key, isBody) || len(r.tiers) > 0 && doc.tiers.from != nil && isBody(*doc.tiers.from)
	return out
}

func isBody(p part) bool { return p.kind == bodyPart }

// defaultAmbiguous is ambiguous where nothing says it. Who is asked for a name that somebody
// has typed guards an account, and honest clients send it in one plain way.
func defaultAmbiguous(key []part) ambiguous {
	if slices.ContainsFunc(key, func(p part) bool { return isBody(p) || p.kind == queryPart }) {
		return refuseAmbiguous
	}
	return chargeAmbiguous
}

// checkExempt complains about keys that have no meaning in an exempt rule.
func (c *compiler) checkExempt(r *ruleDoc) {
	for _, key := range []string{"limit", "key", "together", "missing", "ambiguous", "algorithm", "tiers", "cost", "on_error", "shadow"} {
		if line, written := r.written[key]; written {
			c.fail(line, "remove it, or \"exempt\"", "an exempt rule counts nothing and has no %s", key)
		}
	}
}

func hasPart(key []part, name string) bool { return partIndex(key, name) >= 0 }

func partIndex(key []part, name string) int {
	return slices.IndexFunc(key, func(p part) bool { return p.String() == name })
}

func partNames(key []part) []string {
	names := make([]string, len(key))
	for i := range key {
		names[i] = key[i].String()
	}
	return names
}

func (c *compiler) together(r *ruleDoc) (parts []int) {
	for _, t := range r.together {
		i := partIndex(r.key, t.value)
		switch {
		case i < 0 && len(r.key) == 0:
			c.fail(t.line, "remove it: all of the rule's requests share one key", "together needs a key")
		case i < 0:
			c.fail(t.line, suggest(t.value, partNames(r.key)), "%s in together is not a part of the key", quote(t.value))
		case slices.Contains(parts, i):
			c.fail(t.line, "remove one of them", "together has the part %s twice", quote(t.value))
		default:
			parts = append(parts, i)
		}
	}
	return parts
}

// plan compiles a limit of rule r. It returns nil for one that is not worth it.
func (c *compiler) plan(line int, l sluice.Limit, r *ruleDoc) *sluice.Plan {
	if l.Count == 0 {
		return nil // this has been reported
	}
	l.Algorithm = r.algorithm
	plan, known := c.plans[l]
	if !known {
		var err error
		if plan, err = sluice.NewPlan(l); err != nil {
			c.fail(line, "", "%v", err)
			return nil
		}
		c.plans[l] = plan
	}
	if r.cost.fixed > plan.Capacity {
		c.fail(line, "lower the cost or raise the limit or its burst", "a request costs %d, and the limit %v never lets more than %d pass at once", r.cost.fixed, l, plan.Capacity)
	}
	return plan
}

func (c *compiler) override(p *Policy, doc *document, o *overrideDoc) {
	if o.unreadable {
		return
	}
	i, known := c.names[o.rule]
	if !known {
		c.rule = ""
		c.fail(o.line, suggest(o.rule, c.ruleNames(doc)), "the override is for a rule %s that there is not", quote(o.rule))
		return
	}
	c.rule = o.rule
	r := &p.rules[i]
	if len(r.key) == 0 {
		c.fail(o.line, "change the rule instead", "the rule has no key, so that it has no subjects to override")
		return
	}
	exact, subject, ok := c.subject(p, r, o)
	plan := c.plan(o.limit.line, o.limit.value, &doc.rules[i])
	if ok && plan != nil {
		c.addOverride(r, exact, subject, &override{source: source{plan, "override"}, until: o.until, line: o.line})
	}
}

func (c *compiler) ruleNames(doc *document) []string {
	names := make([]string, 0, min(len(doc.rules), 100))
	for _, r := range doc.rules[:cap(names)] {
		names = append(names, r.name)
	}
	return names
}

func (c *compiler) addOverride(r *rule, exact uint32, subject string, o *override) {
	i := slices.IndexFunc(r.overrides, func(s overrides) bool { return s.exact == exact })
	if i < 0 {
		i = len(r.overrides)
		r.overrides = append(r.overrides, overrides{exact, make(map[string]*override)})
	}
	if first, twice := r.overrides[i].bySubject[subject]; twice {
		c.fail(o.line, "remove one of them", "there are two overrides for this subject, the first in line %d", first.line)
		return
	}
	r.overrides[i].bySubject[subject] = o
	// Those that name more parts are asked first, then those that name earlier ones.
	slices.SortFunc(r.overrides, func(a, b overrides) int {
		return cmp.Or(bits.OnesCount32(b.exact)-bits.OnesCount32(a.exact), cmp.Compare(a.exact, b.exact))
	})
}

// subject returns the text of an override's subject: what the key of such a request
// has behind the rule's name, with "*" for every part that the override leaves open.
func (c *compiler) subject(p *Policy, r *rule, o *overrideDoc) (exact uint32, text string, ok bool) {
	values := make([]string, len(r.key))
	ok = true
	for _, s := range o.key {
		i := partIndex(r.key, s.part)
		if i < 0 {
			c.fail(s.line, suggest(s.part, partNames(r.key)), "%s is not a part of the rule's key", quote(s.part))
			ok = false
			continue
		}
		if s.value == "*" {
			continue
		}
		v, err := r.key[i].normal(s.value, p.ipv6Prefix)
		if err != nil {
			c.fail(s.line, "", "%s: %v", s.part, err)
			ok = false
			continue
		}
		exact |= 1 << i
		values[i] = v
	}
	return exact, string(appendSubject(nil, values, exact)), ok
}

// appendSubject appends "/value" for each value that exact has a bit for, else "/*".
// No value can be "*": it would be written "%2A".
func appendSubject(dst []byte, values []string, exact uint32) []byte {
	for i, v := range values {
		dst = append(dst, '/')
		if exact&(1<<i) == 0 {
			dst = append(dst, '*')
			continue
		}
		dst = sluice.AppendKeyPart(dst, v)
	}
	return dst
}
