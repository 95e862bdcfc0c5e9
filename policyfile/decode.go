package policyfile

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy"
)

// decoder makes a document of nodes and gathers every problem on the way. Its methods return
// a zero value for what they have complained about.
type decoder struct {
	file      string
	root      *yaml.Node // nil if nothing could be read
	path      path       // of what is being read
	rule      string     // the name of the rule that is being read
	problems  policy.Errors
	listFiles map[string]listFile // that were read, by the name of the list
	bodyFiles map[string]string   // their paths, by the paths of the bodies in the document
}

func newDecoder(file string, data []byte) *decoder {
	d := &decoder{file: file, listFiles: make(map[string]listFile), bodyFiles: make(map[string]string)}
	d.root = d.parse(data)
	return d
}

func (d *decoder) where(path string) (string, int) {
	if file, line, ok := d.inList(path); ok {
		return file, line
	}
	if file, line, ok := d.inBody(path); ok {
		return file, line
	}
	return d.file, lineOf(d.root, path)
}

func (d *decoder) fail(line int, hint, format string, args ...any) {
	d.problems = append(d.problems, policy.Problem{
		File: d.file, Line: line, Path: d.path.String(), Rule: d.rule, Message: fmt.Sprintf(format, args...), Hint: hint,
	})
}

func (d *decoder) document() (doc policy.Document) {
	if d.root == nil {
		return doc
	}
	version := false
	d.fields(d.root, "the document", []field{
		{"version", func(n *yaml.Node) { version = true; d.version(n) }},
		{"trusted_proxies", func(n *yaml.Node) { doc.TrustedProxies = d.proxies(n) }},
		{"ipv6_prefix", func(n *yaml.Node) { doc.IPv6Prefix = int(d.integer(n, "ipv6_prefix", 128)) }},
		{"ignore_case", func(n *yaml.Node) { doc.IgnoreCase = d.boolean(n, "ignore_case") }},
		{"shadow", func(n *yaml.Node) { doc.Shadow = d.text(n, "shadow") }},
		{"ambiguous", func(n *yaml.Node) { doc.Ambiguous = d.text(n, "ambiguous") }},
		{"cors", func(n *yaml.Node) { doc.CORS = d.cors(n) }},
		{"tiers", func(n *yaml.Node) { doc.Tiers = d.tiers(n) }},
		{"answers", func(n *yaml.Node) { doc.Answers = byName(d, n, "answers", "answer %s", d.answer) }},
		{"lists", func(n *yaml.Node) { doc.Lists = byName(d, n, "lists", "list %s", d.networks) }},
		{"rules", func(n *yaml.Node) { doc.Rules = d.rules(n) }},
		{"overrides", func(n *yaml.Node) { doc.Overrides = d.overrides(n) }},
		{"subjects", func(n *yaml.Node) { doc.Subjects = d.subjects(n) }},
	})
	if d.root.Kind == yaml.MappingNode && !version {
		d.fail(d.root.Line, "begin it with \"version: 1\"", "the document has no version")
	}
	if d.root.Kind == yaml.MappingNode && !hasKey(d.root, "rules") {
		d.fail(d.root.Line, "write \"rules:\" and below it \"- name: …\"", "the document has no rules")
	}
	return doc
}

func (d *decoder) version(n *yaml.Node) {
	if s := d.text(n, "version"); s != "" && s != "1" {
		d.fail(n.Line, "write \"version: 1\"", "version %s is not known", spelling.Quote(s))
	}
}

// proxies may be an empty list: nobody is trusted, said aloud.
func (d *decoder) proxies(n *yaml.Node) []string {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		return nil
	}
	return d.texts(n, "trusted_proxies")
}

func (d *decoder) cors(n *yaml.Node) (c policy.CORS) {
	d.someFields(n, "cors", []field{
		{"origins", func(n *yaml.Node) { c.Origins = d.texts(n, "cors.origins") }},
		{"credentials", func(n *yaml.Node) { c.Credentials = d.boolean(n, "cors.credentials") }},
		{"preflights", func(n *yaml.Node) { c.Preflights = d.text(n, "cors.preflights") }},
	})
	return c
}

func (d *decoder) tiers(n *yaml.Node) (t policy.Tiers) {
	d.someFields(n, "tiers", []field{
		{"from", func(n *yaml.Node) { t.From = d.text(n, "tiers.from") }},
		{"subject", func(n *yaml.Node) { t.Subject = d.text(n, "tiers.subject") }},
		{"default", func(n *yaml.Node) { t.Default = d.text(n, "tiers.default") }},
	})
	return t
}

func (d *decoder) rules(n *yaml.Node) []policy.Rule {
	if n.Kind != yaml.SequenceNode {
		d.fail(n.Line, "write lines that begin with \"- name: …\"", "rules is %s, and must be a list", kindOf(n))
		return nil
	}
	return each(d, n, "rules", func(item *yaml.Node, r *policy.Rule) {
		d.rule = ruleName(item)
		d.readRule(item, r)
		d.rule = ""
	})
}

func (d *decoder) readRule(n *yaml.Node, r *policy.Rule) {
	d.fields(n, "a rule", []field{
		{"name", func(n *yaml.Node) { r.Name = d.text(n, "name") }},
		{"description", func(n *yaml.Node) { r.Description = d.text(n, "description") }},
		{"match", func(n *yaml.Node) { r.Match = d.texts(n, "match") }},
		{"hosts", func(n *yaml.Node) { r.Hosts = d.texts(n, "hosts") }},
		{"headers", func(n *yaml.Node) { r.Headers = d.textByName(n, "headers", "header %s") }},
		{"attributes", func(n *yaml.Node) { r.Attributes = d.textByName(n, "attributes", "attribute %s") }},
		{"clients", func(n *yaml.Node) { r.Clients = d.texts(n, "clients") }},
		{"not_clients", func(n *yaml.Node) { r.NotClients = d.texts(n, "not_clients") }},
		{"key", func(n *yaml.Node) { r.Key = d.texts(n, "key") }},
		{"together", func(n *yaml.Node) { r.Together = d.texts(n, "together") }},
		{"missing", func(n *yaml.Node) { r.Missing = d.text(n, "missing") }},
		{"ambiguous", func(n *yaml.Node) { r.Ambiguous = d.text(n, "ambiguous") }},
		{"limit", func(n *yaml.Node) { r.Limit = d.limit(n, "limit") }},
		{"limits", func(n *yaml.Node) { r.Limits = d.limits(n, "limits") }},
		{"in_flight", func(n *yaml.Node) { r.InFlight = d.integer(n, "in_flight", 1<<16) }},
		{"algorithm", func(n *yaml.Node) { r.Algorithm = d.text(n, "algorithm") }},
		{"tiers", func(n *yaml.Node) { r.Tiers = byName(d, n, "tiers", "tier %s", d.tier) }},
		{"share", func(n *yaml.Node) { r.Share = d.share(n) }},
		{"cost", func(n *yaml.Node) { r.Cost = d.cost(n) }},
		{"count", func(n *yaml.Node) { r.Count = d.count(n) }},
		{"penalty", func(n *yaml.Node) { r.Penalty = d.penalty(n) }},
		{"on_error", func(n *yaml.Node) { r.OnError = d.text(n, "on_error") }},
		{"consistency", func(n *yaml.Node) { r.Consistency = d.text(n, "consistency") }},
		{"shadow", func(n *yaml.Node) { r.Shadow = d.boolean(n, "shadow") }},
		{"enforce", func(n *yaml.Node) { r.Enforce = d.text(n, "enforce") }},
		{"show_key", func(n *yaml.Node) { r.ShowKey = d.text(n, "show_key") }},
		{"exempt", func(n *yaml.Node) { r.Exempt = d.boolean(n, "exempt") }},
		{"block", func(n *yaml.Node) { r.Block = d.boolean(n, "block") }},
	})
}

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ruleName returns the name of the rule that n is, so that every problem in it can say so.
func ruleName(n *yaml.Node) string {
	if name, _ := value(n, "name", 0); name != nil && nameSyntax.MatchString(name.Value) {
		return name.Value
	}
	return ""
}

func (d *decoder) cost(n *yaml.Node) (c policy.Cost) {
	if n.Kind != yaml.MappingNode {
		return policy.Cost{Default: d.integer(n, "cost", math.MaxInt64)}
	}
	d.fields(n, "cost", []field{
		{"header", func(n *yaml.Node) { c.Header = d.text(n, "cost.header") }},
		{"max", func(n *yaml.Node) { c.Max = d.integer(n, "cost.max", math.MaxInt64) }},
		{"default", func(n *yaml.Node) { c.Default = d.integer(n, "cost.default", math.MaxInt64) }},
		{"response_header", func(n *yaml.Node) { c.ResponseHeader = d.text(n, "cost.response_header") }},
		{"response_bytes", func(n *yaml.Node) { c.ResponseBytes = d.integer(n, "cost.response_bytes", math.MaxInt64) }},
		{"estimate", func(n *yaml.Node) { c.Estimate = d.integer(n, "cost.estimate", math.MaxInt64) }},
	})
	if !slices.ContainsFunc([]string{"header", "max", "response_header", "response_bytes", "estimate"}, func(key string) bool { return hasKey(n, key) }) {
		d.fail(n.Line, "write for example \"header: X-Cost\", or \"cost: 5\" for all", "cost has no header")
	}
	return c
}

func (d *decoder) share(n *yaml.Node) (s policy.Share) {
	d.someFields(n, "share", []field{
		{"of", func(n *yaml.Node) { s.Of = d.limit(n, "share.of") }},
		{"by", func(n *yaml.Node) { s.By = d.texts(n, "share.by") }},
		{"weights", func(n *yaml.Node) {
			s.Weights = byName(d, n, "share.weights", "the weight of %s", func(n *yaml.Node, what string) int64 {
				return d.integer(n, what, math.MaxInt64)
			})
		}},
	})
	return s
}

func (d *decoder) count(n *yaml.Node) (c policy.Count) {
	d.someFields(n, "count", []field{
		{"status", func(n *yaml.Node) {
			for _, s := range d.texts(n, "count.status") {
				c.Status = append(c.Status, policy.Status(s))
			}
		}},
		{"unless_header", func(n *yaml.Node) { c.UnlessHeader = d.text(n, "count.unless_header") }},
	})
	return c
}

func (d *decoder) penalty(n *yaml.Node) (p policy.Penalty) {
	if n.Kind == yaml.ScalarNode {
		return policy.Penalty{First: d.text(n, "penalty")}
	}
	d.someFields(n, "penalty", []field{
		{"first", func(n *yaml.Node) { p.First = d.text(n, "penalty.first") }},
		{"factor", func(n *yaml.Node) { p.Factor = d.integer(n, "penalty.factor", 1000) }},
		{"most", func(n *yaml.Node) { p.Most = d.text(n, "penalty.most") }},
		{"forget", func(n *yaml.Node) { p.Forget = d.text(n, "penalty.forget") }},
	})
	return p
}

func (d *decoder) overrides(n *yaml.Node) []policy.Override {
	return each(d, n, "overrides", func(item *yaml.Node, o *policy.Override) {
		d.fields(item, inOverride, []field{
			{"rule", func(n *yaml.Node) { o.Rule = d.text(n, "rule") }},
			{"key", func(n *yaml.Node) { o.Key = d.textByName(n, "key", "the value of %s") }},
			{"limit", func(n *yaml.Node) { o.Limit = d.limit(n, "limit") }},
			{"limits", func(n *yaml.Node) { o.Limits = d.limits(n, "limits") }},
			{"in_flight", func(n *yaml.Node) { o.InFlight = d.integer(n, "in_flight", 1<<16) }},
			{"block", func(n *yaml.Node) { o.Block = d.boolean(n, "block") }},
			{"exempt", func(n *yaml.Node) { o.Exempt = d.boolean(n, "exempt") }},
			{"until", func(n *yaml.Node) { o.Until = d.text(n, "until") }},
			{"reason", func(n *yaml.Node) { o.Reason = d.text(n, "reason") }},
			{"by", func(n *yaml.Node) { o.By = d.text(n, "by") }},
		})
	})
}

func (d *decoder) subjects(n *yaml.Node) []policy.TierSubject {
	return each(d, n, "subjects", func(item *yaml.Node, t *policy.TierSubject) {
		d.fields(item, inSubject, []field{
			{"subject", func(n *yaml.Node) { t.Subject = d.text(n, "subject") }},
			{"tier", func(n *yaml.Node) { t.Tier = d.text(n, "tier") }},
			{"until", func(n *yaml.Node) { t.Until = d.text(n, "until") }},
			{"reason", func(n *yaml.Node) { t.Reason = d.text(n, "reason") }},
			{"by", func(n *yaml.Node) { t.By = d.text(n, "by") }},
		})
	})
}

// each reads the items of a list.
func each[V any](d *decoder, n *yaml.Node, what string, read func(*yaml.Node, *V)) []V {
	items := d.items(n, what)
	if len(items) == 0 {
		return nil
	}
	all := make([]V, len(items))
	for i, item := range items {
		d.path = d.path.item(i)
		read(item, &all[i])
		d.path = d.path.up()
	}
	return all
}

// field is a key of a mapping whose keys are known, and what reads its value.
type field struct {
	name string
	read func(*yaml.Node)
}

// fields reads a mapping with known keys.
func (d *decoder) fields(n *yaml.Node, what string, fields []field) {
next:
	for _, p := range d.pairs(n, what) {
		for _, f := range fields {
			if f.name == p.key {
				d.path = d.path.field(p.key)
				f.read(p.value)
				d.path = d.path.up()
				continue next
			}
		}
		d.path = d.path.field(p.key)
		d.fail(p.line, meant(n, what, p.key, fields), "unknown key %s in %s", spelling.Quote(p.key), what)
		d.path = d.path.up()
	}
}

// someFields is fields for a mapping that must not be empty.
func (d *decoder) someFields(n *yaml.Node, what string, fields []field) {
	d.notEmpty(n, what)
	d.fields(n, what, fields)
}

func (d *decoder) notEmpty(n *yaml.Node, what string) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.fail(n.Line, "fill it, or leave the key out", "%s is an empty mapping", what)
	}
}

// pair is an entry of a mapping whose keys are free.
type pair struct {
	line  int
	key   string
	value *yaml.Node
}

// pairs returns the entries of a mapping, each key once.
func (d *decoder) pairs(n *yaml.Node, what string) []pair {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, mappingHint(what), "%s is %s, and must be a mapping", what, kindOf(n))
		return nil
	}
	lines := make(map[string]int, len(n.Content)/2)
	ps := make([]pair, 0, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || isNull(k) {
			d.fail(k.Line, "put it into quotes if it is a name", "a key of %s is %s", what, kindOf(k))
			continue
		}
		if before, twice := lines[k.Value]; twice {
			d.path = d.path.field(k.Value)
			d.fail(k.Line, "remove one of them", "%s has the key %s twice, first in line %d", what, spelling.Quote(k.Value), before)
			d.path = d.path.up()
			continue
		}
		lines[k.Value] = k.Line
		ps = append(ps, pair{k.Line, k.Value, v})
	}
	return ps
}

// textByName returns the texts of a mapping with free keys, of which format says what they are.
func (d *decoder) textByName(n *yaml.Node, what, format string) map[string]string {
	return byName(d, n, what, format, d.text)
}

// byName is textByName for what read reads.
func byName[V any](d *decoder, n *yaml.Node, what, format string, read func(*yaml.Node, string) V) map[string]V {
	d.notEmpty(n, what)
	var all map[string]V
	for _, p := range d.pairs(n, what) {
		if all == nil {
			all = make(map[string]V, len(n.Content)/2)
		}
		d.path = d.path.field(p.key)
		all[p.key] = read(p.value, fmt.Sprintf(format, spelling.Quote(p.key)))
		d.path = d.path.up()
	}
	return all
}

// items returns the elements of a list; a single scalar is a list of one.
func (d *decoder) items(n *yaml.Node, what string) []*yaml.Node {
	switch {
	case n.Kind == yaml.SequenceNode:
		return n.Content
	case n.Kind == yaml.ScalarNode && !isNull(n):
		return []*yaml.Node{n}
	}
	d.fail(n.Line, listHint(n, what), "%s is %s, and must be a list", what, kindOf(n))
	return nil
}

// texts returns a list of scalars, or one. It has an entry for each of them, so that the
// indexes are those of the file.
func (d *decoder) texts(n *yaml.Node, what string) []string { return d.list(n, what, d.text) }

// limits is texts for limits.
func (d *decoder) limits(n *yaml.Node, what string) []string {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.fail(n.Line, "write for example "+lists["limits"], "%s is an empty list", what)
		return nil
	}
	return d.list(n, what, d.limit)
}

func (d *decoder) list(n *yaml.Node, what string, read func(*yaml.Node, string) string) []string {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		d.fail(n.Line, "fill it, or leave the key out", "%s is an empty list", what)
	}
	return each(d, n, what, func(item *yaml.Node, text *string) { *text = read(item, "an entry of "+what) })
}

// text returns a scalar as it is written.
func (d *decoder) text(n *yaml.Node, what string) string {
	switch {
	case n.Kind != yaml.ScalarNode && len(n.Content) > 0:
		d.fail(n.Line, textHint(n, what), "%s is %s, and must be text", what, kindOf(n))
		return ""
	case n.Kind != yaml.ScalarNode || isNull(n) || n.Value == "":
		d.fail(n.Line, "write a value, or leave the key out", "%s is empty", what)
		return ""
	}
	return n.Value
}

// limit returns the text of a limit.
func (d *decoder) limit(n *yaml.Node, what string) string {
	if n.Kind == yaml.ScalarNode || len(n.Content) == 0 {
		return d.text(n, what)
	}
	hint := "write it in one line, as in \"100/minute burst 20\""
	if n.Kind == yaml.SequenceNode && what == "limit" {
		hint = "write \"limits\" in place of \"limit\""
	}
	d.fail(n.Line, hint, "%s is %s, and must be text", what, kindOf(n))
	return ""
}

// tier returns the limits of a tier: a text, or a list of texts.
func (d *decoder) tier(n *yaml.Node, what string) policy.Limits {
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		return d.limits(n, what)
	}
	return policy.Limits{d.limit(n, what)}
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// integer returns a whole number. It leaves to the compiler what is out of range, but for 0,
// which is there what is left out.
func (d *decoder) integer(n *yaml.Node, what string, most int64) int64 {
	s := d.text(n, what)
	if s == "" {
		return 0
	}
	if !wholeNumber.MatchString(s) {
		d.fail(n.Line, "write digits only, without a leading 0, a point or an exponent", "%s is %s, and must be a whole number", what, spelling.Quote(s))
		return 0
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v == 0 {
		d.fail(n.Line, fmt.Sprintf("use a number from 1 to %d", most), "%s is %.60s", what, s)
		return 0
	}
	return v
}

func (d *decoder) boolean(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Value != "true" && n.Value != "false" {
		d.fail(n.Line, "write true or false", "%s is %s", what, kindOf(n))
	}
	return n.Value == "true"
}

// kindOf says what n is, in words.
func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "empty"
	}
	return spelling.Quote(n.Value)
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func hasKey(n *yaml.Node, key string) bool {
	v, _ := value(n, key, 0)
	return v != nil
}
