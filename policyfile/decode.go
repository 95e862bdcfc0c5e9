package policyfile

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy"
)

// decoder makes a document from nodes, and collects all problems. For a node with a problem, its methods return a zero
// value.
type decoder struct {
	file     string
	root     *yaml.Node // nil if nothing could be read
	path     path       // the path of the value that is being read
	rule     string     // the name of the rule that is being read
	problems policy.Errors
	parts    map[string]part // the other files that were read, by the path of their value in the document

	pricesFile string // the file of the prices, if it was read
	pricesRoot *yaml.Node
}

// part is another file with a value of the document, such as a list. The document itself has only the file's name.
type part struct {
	file  string
	lines []int // the line of each entry; nil if every line is an entry
}

func newDecoder(file string, data []byte) *decoder {
	d := &decoder{file: file, parts: make(map[string]part)}
	d.root = d.parse(data)
	return d
}

// where returns the file and the line of the value at a path.
func (d *decoder) where(path string) (file string, line int) {
	if in, found := strings.CutPrefix(path, "prices"); found && d.pricesRoot != nil {
		return d.pricesFile, lineOf(d.pricesRoot, in)
	}
	at := max(strings.LastIndexByte(path, '['), 0)
	i, err := strconv.Atoi(strings.Trim(path[at:], "[]"))
	switch p, known := d.parts[path[:at]]; {
	case !known || err != nil:
		return d.file, lineOf(d.root, path)
	case p.lines != nil:
		return p.file, p.lines[i]
	default:
		return p.file, i + 1
	}
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
	version := field{"version", d.version}
	d.fields(d.root, inDocument, append([]field{version}, d.fieldsOf(reflect.ValueOf(&doc).Elem(), "")...))
	if d.root.Kind == yaml.MappingNode && !hasKey(d.root, "version") {
		d.fail(d.root.Line, "add \"version: 1\" as the first line", "the document has no version")
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

// fieldsOf returns a reader for each field of a struct, under the name in the field's JSON tag. Problems refer to
// the field by the prefix and this name.
func (d *decoder) fieldsOf(v reflect.Value, prefix string) (all []field) {
	for f, at := range v.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			all = append(all, d.fieldsOf(at, prefix)...)
		case name != "-":
			all = append(all, field{name, func(n *yaml.Node) { d.into(n, at, prefix+name) }})
		}
	}
	return all
}

// into reads a node into v, a value of the document. Problems refer to the value by the words in the parameter
// what.
func (d *decoder) into(n *yaml.Node, v reflect.Value, what string) {
	switch to := v.Addr().Interface().(type) {
	case *policy.Limits:
		d.tier(n, v, what)
	case *policy.List:
		d.networks(n, to, what)
	case *policy.Prices:
		d.prices(n, to, what)
	case *policy.Price:
		d.someFields(n, what, d.fieldsOf(v, ""))
	case *policy.Answer:
		d.answer(n, v, what)
	case *policy.Cost:
		d.cost(n, to)
	case *policy.Estimate:
		if n.Kind == yaml.ScalarNode {
			to.Units = d.integer(n, what)
			return
		}
		d.someFields(n, what, d.fieldsOf(v, what+"."))
	case *policy.InFlight:
		d.inFlight(n, to, what)
	case *policy.Penalty:
		if n.Kind == yaml.ScalarNode {
			to.First = d.text(n, what)
			return
		}
		d.someFields(n, what, d.fieldsOf(v, what+"."))
	default:
		d.intoKind(n, v, what)
	}
}

func (d *decoder) intoKind(n *yaml.Node, v reflect.Value, what string) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(d.boolean(n, what))
	case reflect.Int, reflect.Int64:
		v.SetInt(d.integer(n, what))
	case reflect.String:
		v.SetString(d.text(n, what))
	case reflect.Slice:
		d.list(n, v, what)
	case reflect.Map:
		d.mapping(n, v, what)
	case reflect.Struct:
		d.someFields(n, what, d.fieldsOf(v, what+"."))
	}
}

// inFlight reads a number, "auto", or a mapping.
func (d *decoder) inFlight(n *yaml.Node, to *policy.InFlight, what string) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Value == "auto":
		to.Auto = true
	case n.Kind != yaml.MappingNode:
		to.Most = d.integer(n, what)
	default:
		d.someFields(n, what, d.fieldsOf(reflect.ValueOf(to).Elem(), what+"."))
		if !to.Auto {
			d.fail(n.Line, "write \"auto: true\" in it, or a number in its place", "in_flight is a mapping without auto")
		}
	}
}

// called has the words by which problems refer to the items of a list or a mapping, by the name of the list or
// mapping.
var called = map[string]string{
	"rules": inRule, "overrides": inOverride, "subjects": inSubject, "bodies": "a body",
	"headers": "header %s", "attributes": "attribute %s", "body": "the value of the field %s", "key": "the value of %s", "tiers": "tier %s", "share.weights": "the weight of %s",
	"cost.response_json": "the weight of %s", "answers": "answer %s", "lists": "list %s", "prices": "the price of %s",
}

// list reads a list of structs or of texts. A single text may be written without the list. The result has an entry for
// each item, even for an invalid one, so that its indexes are those of the file.
func (d *decoder) list(n *yaml.Node, v reflect.Value, what string) {
	structs := v.Type().Elem().Kind() == reflect.Struct
	switch {
	case structs && n.Kind != yaml.SequenceNode:
		d.fail(n.Line, listHint(n, what), "%s is %s, and must be a list", what, kindOf(n))
		return
	case n.Kind != yaml.SequenceNode || len(n.Content) > 0:
	case what == "trusted_proxies" || structs && what != "bodies": // may be an empty list
		return
	case what == "limits":
		d.fail(n.Line, "write for example "+lists[what], "%s is an empty list", what)
		return
	default:
		d.fail(n.Line, "fill it, or leave the key out", "%s is an empty list", what)
		return
	}
	items := d.items(n, what)
	if len(items) == 0 {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(items), len(items)))
	for i, item := range items {
		d.path = d.path.item(i)
		d.item(item, v.Index(i), what)
		d.path = d.path.up()
	}
}

// item reads an item of the list with the given name.
func (d *decoder) item(n *yaml.Node, v reflect.Value, what string) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(d.text(n, "an entry of "+what))
	case what == "rules":
		d.rule = ruleName(n)
		defer func() { d.rule = "" }()
		fallthrough
	default:
		d.fields(n, called[what], d.fieldsOf(v, ""))
	}
}

// mapping reads a mapping with arbitrary keys.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, what string) {
	d.notEmpty(n, what)
	for _, p := range d.pairs(n, what) {
		if v.IsNil() {
			v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Content)/2))
		}
		item := reflect.New(v.Type().Elem()).Elem()
		d.path = d.path.field(p.key)
		d.into(p.value, item, fmt.Sprintf(called[what], spelling.Quote(p.key)))
		d.path = d.path.up()
		v.SetMapIndex(reflect.ValueOf(p.key), item)
	}
}

var nameSyntax = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// ruleName returns the name of the rule n, for its problems.
func ruleName(n *yaml.Node) string {
	if name, _ := value(n, "name", 0); name != nil && nameSyntax.MatchString(name.Value) {
		return name.Value
	}
	return ""
}

func (d *decoder) cost(n *yaml.Node, c *policy.Cost) {
	if n.Kind != yaml.MappingNode {
		c.Default = d.integer(n, "cost")
		return
	}
	d.fields(n, "cost", d.fieldsOf(reflect.ValueOf(c).Elem(), "cost."))
	if !slices.ContainsFunc([]string{"header", "max", "response_header", "response_bytes", "tokens", "usd", "response_json", "estimate"}, func(key string) bool { return hasKey(n, key) }) {
		d.fail(n.Line, "write for example \"header: X-Cost\", or \"cost: 5\" for all", "cost has no header")
	}
}

// field is a known key of a mapping, and the function that reads its value.
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

// someFields is like fields, but the mapping must not be empty.
func (d *decoder) someFields(n *yaml.Node, what string, fields []field) {
	d.notEmpty(n, what)
	d.fields(n, what, fields)
}

func (d *decoder) notEmpty(n *yaml.Node, what string) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		d.fail(n.Line, "fill it, or leave the key out", "%s is an empty mapping", what)
	}
}

// pair is an entry of a mapping.
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
			d.fail(k.Line, "quote it if it is a name", "a key of %s is %s", what, kindOf(k))
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

// text returns the text of a scalar, as written.
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

// tier reads the limits of a tier: a text, or a list of texts.
func (d *decoder) tier(n *yaml.Node, v reflect.Value, what string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		d.list(n, v, what)
		return
	}
	v.Set(reflect.ValueOf(policy.Limits{d.text(n, what)}))
}

var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// largest has the largest values of the whole numbers that have a bound of their own.
var largest = map[string]int64{"ipv6_prefix": 128, "in_flight": 1 << 16, "in_flight.least": 1 << 16, "in_flight.most": 1 << 16, "penalty.factor": 1000, "status": math.MaxInt32}

// integer reads a whole number. It rejects numbers beyond 64 bits, and 0, because the compiler takes 0 for a missing
// value. The compiler checks all other bounds.
func (d *decoder) integer(n *yaml.Node, what string) int64 {
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
		d.fail(n.Line, fmt.Sprintf("use a number from 1 to %d", cmp.Or(largest[what], math.MaxInt64)), "%s is %.60s", what, s)
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

// kindOf returns the kind of n in words.
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
