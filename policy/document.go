package policy

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"go.yaml.in/yaml/v3"
)

// document is a policy as it is written: each value is right by itself, and nothing is
// known yet of how they fit together. A line says where in the file a thing stands.
type document struct {
	trusted    lined[[]netip.Prefix]
	ipv6Prefix int
	ignoreCase bool
	ambiguous  ambiguous
	cors       *CORS // nil: there is none
	tiers      tiersDoc
	rules      []ruleDoc
	overrides  []overrideDoc
}

type tiersDoc struct {
	line     int // 0: there are none
	from     *part
	fallback string
}

// canonical returns the name of a tier as requests have it.
func (t *tiersDoc) canonical(name string) string {
	if t.from == nil {
		return name
	}
	return t.from.canonical(name)
}

type ruleDoc struct {
	line       int
	name       string
	match      []*pattern
	hosts      []string // lower case, "*.example.com" for all below it
	headers    []headerDoc
	key        []part
	together   []lined[string]
	missing    missing
	ambiguous  ambiguous
	algorithm  sluice.Algorithm
	limit      lined[sluice.Limit]
	tiers      []tierDoc
	cost       cost
	costLine   int
	onError    sluice.OnError
	shadow     bool
	exempt     bool
	written    map[string]int // the line of each key of the rule
	unreadable bool           // a problem has been reported that later checks would repeat
}

type lined[T any] struct {
	line  int
	value T
}

type tierDoc struct {
	line  int
	name  string
	limit sluice.Limit
}

// headerDoc is a header that a request must have, with a value, or with any if the
// value is empty.
type headerDoc struct{ name, value string }

type overrideDoc struct {
	line  int
	rule  string
	key   []subjectDoc
	limit lined[sluice.Limit]
	until time.Time // zero: for ever
	// unreadable says that a problem has been reported that later checks would repeat.
	unreadable bool
}

type subjectDoc struct {
	line        int
	part, value string
}

// missing says what happens to a request that lacks a part of a rule's key.
type missing uint8

const (
	share  missing = iota // it shares a bucket with all who lack it
	skip                  // the rule does not apply
	refuse                // it is refused as malformed
)

// ambiguous says what happens to a request that servers may read in several ways, in what a
// rule goes by: its path, or a part of the key.
type ambiguous uint8

const (
	byKey           ambiguous = iota // refuseAmbiguous for a key of names that are typed, else chargeAmbiguous
	refuseAmbiguous                  // it is refused as malformed
	chargeAmbiguous                  // every reading of the path is charged, and one count is shared by all doubtful keys
)

func (d *decoder) ambiguous(n *yaml.Node) ambiguous {
	return refuseAmbiguous + ambiguous(d.choice(n, "ambiguous", []string{"refuse", "charge"}))
}

var missingNames = []string{share: "share", skip: "skip", refuse: "refuse"}

var onErrorNames = []string{sluice.Allow.String(), sluice.Deny.String(), sluice.Local.String()}

// cost is what a request takes from a rule: fixed, or from a header if that is set.
type cost struct {
	header string // canonical
	fixed  int64  // the default where there is a header
	max    int64
}

const defaultIPv6Prefix = 64

func (d *decoder) document(n *yaml.Node) *document {
	doc := &document{ipv6Prefix: defaultIPv6Prefix}
	version, rules := false, false
	d.fields(n, "the document", []field{
		{"version", func(n *yaml.Node) {
			version = true
			if s, ok := d.text(n, "version"); ok && s != "1" {
				d.fail(n.Line, "write \"version: 1\"", "version %s is not known", quote(s))
			}
		}},
		{"trusted_proxies", func(n *yaml.Node) { doc.trusted = lined[[]netip.Prefix]{n.Line, d.prefixes(n)} }},
		{"ipv6_prefix", func(n *yaml.Node) {
			if v, ok := d.integer(n, "ipv6_prefix", 1, 128); ok {
				doc.ipv6Prefix = int(v)
			}
		}},
		{"ignore_case", func(n *yaml.Node) { doc.ignoreCase = d.boolean(n, "ignore_case") }},
		{"ambiguous", func(n *yaml.Node) { doc.ambiguous = d.ambiguous(n) }},
		{"cors", func(n *yaml.Node) { doc.cors = d.cors(n) }},
		{"tiers", func(n *yaml.Node) { doc.tiers = d.tierSource(n) }},
		{"rules", func(n *yaml.Node) { rules, doc.rules = true, d.rules(n) }},
		{"overrides", func(n *yaml.Node) { doc.overrides = d.overrides(n) }},
	})
	if n.Kind == yaml.MappingNode && !version {
		d.fail(n.Line, "begin it with \"version: 1\"", "the document has no version")
	}
	if n.Kind == yaml.MappingNode && !rules {
		d.fail(n.Line, "write \"rules:\" and below it \"- name: …\"", "the document has no rules")
	}
	return doc
}

func (d *decoder) prefixes(n *yaml.Node) (all []netip.Prefix) {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return nil // nobody is trusted, said aloud
	}
	d.texts(n, "trusted_proxies", func(line int, s string) {
		p, err := parsePrefix(s)
		if err != nil {
			d.fail(line, "write it as in 10.0.0.0/8, 192.0.2.7 or \"2001:db8::/32\"", "%s is neither an address nor a CIDR", quote(s))
			return
		}
		all = append(all, p)
	})
	return all
}

// parsePrefix reads an address or a CIDR. What IPv6 says of IPv4 is folded to IPv4.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("neither an address nor a CIDR")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

func (d *decoder) tierSource(n *yaml.Node) tiersDoc {
	t := tiersDoc{line: n.Line}
	d.fields(n, "tiers", []field{
		{"from", func(n *yaml.Node) {
			if p, ok := d.part(n, "tiers.from"); ok {
				t.from = &p
			}
		}},
		{"default", func(n *yaml.Node) {
			if s, ok := d.text(n, "tiers.default"); ok && d.checkName(n.Line, "tiers.default", s) {
				t.fallback = s
			}
		}},
	})
	if n.Kind == yaml.MappingNode && !hasKey(n, "from") {
		d.fail(n.Line, "write for example \"from: header:X-Plan\"", "tiers has no from")
	}
	return t
}

func hasKey(n *yaml.Node, key string) bool {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func (d *decoder) part(n *yaml.Node, what string) (part, bool) {
	s, ok := d.text(n, what)
	if !ok {
		return part{}, false
	}
	p, err := parsePart(s)
	if err != nil {
		d.fail(n.Line, "", "%v", err)
	}
	return p, err == nil
}

func (d *decoder) rules(n *yaml.Node) []ruleDoc {
	if n.Kind != yaml.SequenceNode {
		d.fail(n.Line, "write lines that begin with \"- name: …\"", "rules is %s, and must be a list", kindOf(n))
		return nil
	}
	rules := make([]ruleDoc, len(n.Content))
	for i, c := range n.Content {
		rules[i] = d.readRule(c)
	}
	return rules
}

func (d *decoder) readRule(n *yaml.Node) ruleDoc {
	r := ruleDoc{line: n.Line, cost: cost{fixed: 1}, written: make(map[string]int)}
	before := len(d.problems)
	d.rule = ruleName(n)
	defer func() { d.rule = "" }()
	d.fields(n, "a rule", []field{
		{"name", func(n *yaml.Node) {
			if s, ok := d.text(n, "name"); ok && d.checkName(n.Line, "name", s) {
				r.name = s
			}
		}},
		{"description", func(n *yaml.Node) { d.text(n, "description") }},
		{"match", func(n *yaml.Node) { r.match = d.patterns(n) }},
		{"hosts", func(n *yaml.Node) { r.hosts = d.hosts(n) }},
		{"headers", func(n *yaml.Node) { r.headers = d.headers(n) }},
		{"key", func(n *yaml.Node) { r.key = d.parts(n) }},
		{"together", func(n *yaml.Node) {
			d.texts(n, "together", func(line int, s string) { r.together = append(r.together, lined[string]{line, s}) })
		}},
		{"missing", func(n *yaml.Node) { r.missing = missing(d.choice(n, "missing", missingNames)) }},
		{"ambiguous", func(n *yaml.Node) { r.ambiguous = d.ambiguous(n) }},
		{"limit", func(n *yaml.Node) { r.limit = lined[sluice.Limit]{n.Line, d.limit(n, "limit")} }},
		{"algorithm", func(n *yaml.Node) {
			r.algorithm = sluice.Algorithm(d.choice(n, "algorithm", algorithmNames))
		}},
		{"tiers", func(n *yaml.Node) {
			for _, p := range d.pairs(n, "tiers") {
				if d.checkName(p.line, "tier", p.key) {
					r.tiers = append(r.tiers, tierDoc{p.line, p.key, d.limit(p.value, "tier "+quote(p.key))})
				}
			}
		}},
		{"cost", func(n *yaml.Node) { r.cost, r.costLine = d.cost(n), n.Line }},
		{"on_error", func(n *yaml.Node) { r.onError = sluice.OnError(d.choice(n, "on_error", onErrorNames)) }},
		{"shadow", func(n *yaml.Node) { r.shadow = d.boolean(n, "shadow") }},
		{"exempt", func(n *yaml.Node) { r.exempt = d.boolean(n, "exempt") }},
	})
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		r.written[n.Content[i].Value] = n.Content[i].Line
	}
	r.unreadable = len(d.problems) > before
	return r
}

// ruleName returns the name of the rule that n is, so that every problem in it can say so.
func ruleName(n *yaml.Node) string {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" && nameSyntax.MatchString(n.Content[i+1].Value) {
			return n.Content[i+1].Value
		}
	}
	return ""
}

var algorithmNames = func() (names []string) {
	for _, a := range sluice.Algorithms() {
		names = append(names, a.String())
	}
	return names
}()

func (d *decoder) limit(n *yaml.Node, what string) sluice.Limit {
	s, ok := d.text(n, what)
	if !ok {
		return sluice.Limit{}
	}
	l, err := sluice.ParseLimit(s)
	if err != nil {
		d.fail(n.Line, "", "%v", err)
	}
	return l
}

func (d *decoder) patterns(n *yaml.Node) (all []*pattern) {
	d.texts(n, "match", func(line int, s string) {
		p, err := parsePattern(s)
		if err != nil {
			d.fail(line, "", "%v", err)
			return
		}
		all = append(all, p)
	})
	return all
}

// hostSyntax takes names and IPv4 addresses, in lower case.
var hostSyntax = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)

func (d *decoder) hosts(n *yaml.Node) (all []string) {
	d.texts(n, "hosts", func(line int, s string) {
		host := strings.TrimSuffix(strings.ToLower(s), ".")
		name := strings.TrimPrefix(host, "*.")
		if !hostSyntax.MatchString(name) {
			d.fail(line, "write it as in example.com or \"*.example.com\", without scheme and port", "%s is not a host", quote(s))
			return
		}
		all = append(all, host)
	})
	return all
}

func (d *decoder) headers(n *yaml.Node) (all []headerDoc) {
	pairs := d.pairs(n, "headers")
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.fail(n.Line, "fill it, or leave the key out", "headers is an empty mapping")
	}
	for _, p := range pairs {
		value, ok := d.text(p.value, "header "+quote(p.key))
		if !ok || !d.headerName(p.line, p.key) {
			continue
		}
		h := headerDoc{name: http.CanonicalHeaderKey(p.key), value: strings.TrimSpace(value)}
		if value == "*" {
			h.value = ""
		}
		if slices.ContainsFunc(all, func(o headerDoc) bool { return o.name == h.name }) {
			d.fail(p.line, "remove one of them", "the header %s is written twice", h.name)
		}
		all = append(all, h)
	}
	return all
}

var headerSyntax = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

func (d *decoder) headerName(line int, s string) bool {
	switch {
	case !headerSyntax.MatchString(s):
		d.fail(line, "write it as in X-Plan", "%s is not the name of a header", quote(s))
	case strings.EqualFold(s, "Host"):
		d.fail(line, "write \"hosts: [example.com]\"", "Host is not to be had as a header")
	default:
		return true
	}
	return false
}

func (d *decoder) parts(n *yaml.Node) (all []part) {
	for _, item := range d.someItems(n, "key") {
		p, ok := d.part(item, "a part of key")
		if !ok {
			continue
		}
		if slices.ContainsFunc(all, func(o part) bool { return o.kind == p.kind && o.name == p.name }) {
			d.fail(item.Line, "remove one of them", "key has the part %s twice", quote(p.String()))
		}
		all = append(all, p)
	}
	return all
}

func (d *decoder) cost(n *yaml.Node) cost {
	const what = "cost"
	if n.Kind != yaml.MappingNode {
		v, _ := d.integer(n, what, 1, math.MaxInt64)
		return cost{fixed: v}
	}
	c := cost{fixed: 1}
	d.fields(n, what, []field{
		{"header", func(n *yaml.Node) {
			if s, ok := d.text(n, "cost.header"); ok && d.headerName(n.Line, s) {
				c.header = http.CanonicalHeaderKey(s)
			}
		}},
		{"max", func(n *yaml.Node) { c.max, _ = d.integer(n, "cost.max", 1, math.MaxInt64) }},
		{"default", func(n *yaml.Node) { c.fixed, _ = d.integer(n, "cost.default", 1, math.MaxInt64) }},
	})
	switch {
	case !hasKey(n, "header"):
		d.fail(n.Line, "write for example \"header: X-Cost\", or \"cost: 5\" for all", "cost has no header")
	case !hasKey(n, "max"):
		d.fail(n.Line, "write for example \"max: 100\"", "a cost from a header needs a max")
	case c.max > 0 && c.fixed > c.max:
		d.fail(n.Line, "lower default or raise max", "cost.default is %d, and cost.max only %d", c.fixed, c.max)
	}
	return c
}

func (d *decoder) overrides(n *yaml.Node) (all []overrideDoc) {
	for _, item := range d.items(n, "overrides") {
		all = append(all, d.override(item))
	}
	return all
}

func (d *decoder) override(n *yaml.Node) (o overrideDoc) {
	o.line = n.Line
	before := len(d.problems)
	defer func() { o.unreadable = len(d.problems) > before }()
	d.fields(n, "an override", []field{
		{"rule", func(n *yaml.Node) { o.rule, _ = d.text(n, "rule") }},
		{"key", func(n *yaml.Node) {
			for _, p := range d.pairs(n, "key") {
				if v, ok := d.text(p.value, "the value of "+quote(p.key)); ok {
					o.key = append(o.key, subjectDoc{p.line, p.key, v})
				}
			}
		}},
		{"limit", func(n *yaml.Node) { o.limit = lined[sluice.Limit]{n.Line, d.limit(n, "limit")} }},
		{"until", func(n *yaml.Node) { o.until = d.instant(n) }},
		{"reason", func(n *yaml.Node) { d.text(n, "reason") }},
	})
	if n.Kind != yaml.MappingNode {
		return o
	}
	for _, need := range []string{"rule", "key", "limit"} {
		if !hasKey(n, need) {
			d.fail(n.Line, "write for example \"{rule: per-key, key: {api_key: abc}, limit: 500/minute}\"", "the override has no %s", need)
		}
	}
	return o
}

func (d *decoder) instant(n *yaml.Node) time.Time {
	s, ok := d.text(n, "until")
	if !ok {
		return time.Time{}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t
		}
	}
	d.fail(n.Line, "write it as in 2027-01-31T12:00:00Z, or 2027-01-31 for the beginning of that day in UTC", "until is %s, which is not a time", quote(s))
	return time.Time{}
}
