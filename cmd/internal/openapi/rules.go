package openapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/policy"
)

// The limits that are proposed for operations without a limit.
const (
	proposedRead  = "100/minute"
	proposedWrite = "20/minute"
)

// Policy is a policy translated from a document, with comments.
type Policy struct {
	Document policy.Document
	// Left has a problem for each operation or path that is missing from the policy.
	Left policy.Errors

	unlimited []*Operation // operations for which extensions switch limits off
	head      []string
	comments  [][]string // one list for each rule
}

// Policy returns a policy with rules for all operations, except those for which extensions switch limits off. A rule
// has the limit of an extension, or a proposed limit in shadow mode.
func (d *Document) Policy() (*Policy, error) {
	b := builder{d: d, quotas: d.quotas(), tyk: d.tykLimits(), own: map[string][]*Operation{}}
	b.Left = slices.Clone(d.Left)
	b.readHosts()
	general := d.generalLimits()
	inherit, shared := []*Operation{}, map[quotaShare][]*Operation{}
	for i := range d.Operations {
		o := &d.Operations[i]
		limits, known := b.limitsOf(o)
		costs := b.quotaShares(o)
		for _, s := range costs {
			shared[s] = append(shared[s], o)
		}
		switch {
		case known || len(costs) > 0:
			b.limited(o, limits, len(costs) > 0)
		case hasText(general):
			inherit = append(inherit, o)
		default:
			b.propose(o, general)
		}
	}
	b.shared(shared)
	b.general(general, inherit)
	b.overlaps()
	b.summarize()
	_, err := policy.Compile(b.Document)
	return &b.Policy, err
}

// builder makes the rules for a document.
type builder struct {
	Policy
	d      *Document
	quotas map[string]*limit
	tyk    map[string]*limit
	hosts  []string
	own    map[string][]*Operation // the operations of each rule, by name

	schemes  []string // notes about security schemes
	proposed int
}

// readHosts reads the host names of x-kuadrant.
func (b *builder) readHosts() {
	for _, n := range []*yaml.Node{b.d.root, b.d.field(b.d.root, "info")} {
		for _, h := range b.d.items(b.d.field(b.d.field(b.d.field(n, "x-kuadrant"), "route"), "hostnames")) {
			if host := text(h); compiles(policy.Rule{Hosts: []string{host}}) == nil && !slices.Contains(b.hosts, host) {
				b.hosts = append(b.hosts, host)
			}
		}
	}
}

// generalLimits returns the limits that a document sets for operations without limits of their own.
func (d *Document) generalLimits() []*limit {
	root, _ := d.limitsOf(d.root)
	info, _ := d.limitsOf(d.field(d.root, "info"))
	all := slices.Concat(root, info)
	if n := d.field(d.field(d.root, "x-yc-apigateway"), "rateLimit"); n != nil {
		for _, l := range readYandex(d, n) {
			l.extension = "x-yc-apigateway"
			all = append(all, l)
		}
	}
	if l := d.tykLimit(d.field(d.field(d.field(d.root, "x-tyk-api-gateway"), "upstream"), "rateLimit")); l != nil {
		all = append(all, l)
	}
	return all
}

func hasText(limits []*limit) bool {
	return slices.ContainsFunc(limits, func(l *limit) bool { return len(l.texts) > 0 })
}

// limitsOf returns the limits of an operation, or else those of its path.
func (b *builder) limitsOf(o *Operation) (all []*limit, known bool) {
	if all, known = b.d.limitsOf(o.node); !known {
		all, known = b.d.limitsOf(o.item)
	}
	if l := b.tyk[o.ID]; l != nil && o.ID != "" {
		all, known = append(all, l), true
	}
	return all, known
}

// limited adds the rules for an operation with limits from extensions.
func (b *builder) limited(o *Operation, limits []*limit, quota bool) {
	switch {
	case hasText(limits):
		var unread []string
		for _, l := range limits {
			if len(l.texts) == 0 {
				unread = append(unread, l.unread()...)
			}
		}
		for _, l := range limits {
			if len(l.texts) > 0 {
				l.notes, unread = append(l.notes, unread...), nil
				b.add(o, l)
			}
		}
	case len(limits) > 0:
		b.propose(o, limits)
	case !quota:
		b.unlimited = append(b.unlimited, o)
	}
}

// propose adds a rule with a proposed limit for an operation. The parameter unread has limits of the operation that
// could not be read.
func (b *builder) propose(o *Operation, unread []*limit) {
	l := &limit{texts: []string{proposedWrite}, shadow: true}
	if slices.Contains([]string{"", "GET", "HEAD", "OPTIONS", "TRACE", "QUERY"}, o.Method) {
		l.texts[0] = proposedRead
	}
	for _, u := range unread {
		l.notes = append(l.notes, u.unread()...)
	}
	b.proposed++
	b.add(o, l)
}

// unread returns the reasons why a limit is missing from the policy.
func (l *limit) unread() (all []string) {
	for _, n := range l.notes {
		all = append(all, fmt.Sprintf("not read from %s: %s", l.extension, n))
	}
	return all
}

// add adds the rules for one limit of an operation, one for each alternative in the security requirements.
func (b *builder) add(o *Operation, l *limit) {
	match, notes := b.patterns(o)
	comments := slices.Concat([]string{title(o) + " " + l.origin()}, sentences(l.notes), notes)
	b.addKeys(policy.Rule{Name: ruleName(cmp.Or(o.ID, o.String())), Match: match}, l, b.d.credentialsOf(o), comments, []*Operation{o})
}

// title describes an operation.
func title(o *Operation) string {
	text := o.String()
	if o.Summary != "" {
		text += ": " + strings.TrimSuffix(strings.TrimSpace(o.Summary), ".")
	}
	text += fmt.Sprintf(" (line %d).", o.Line)
	if len(o.Tags) > 0 {
		text += " Tags: " + strings.Join(o.Tags, ", ") + "."
	}
	return text
}

// origin returns a sentence about the origin of a limit.
func (l *limit) origin() string {
	if l.extension == "" {
		return "Proposed."
	}
	return "From " + l.extension + "."
}

// sentences turns texts into sentences, with a capital letter and a period.
func sentences(texts []string) (all []string) {
	for _, t := range texts {
		all = append(all, strings.ToUpper(t[:1])+t[1:]+".")
	}
	return all
}

// addKeys adds a rule for each key of a limit.
func (b *builder) addKeys(r policy.Rule, l *limit, c credentials, comments []string, of []*Operation) {
	r.Hosts, r.Algorithm, r.Shadow = b.hosts, l.algorithm, l.shadow
	if r.Limit = l.texts[0]; len(l.texts) > 1 {
		r.Limit, r.Limits = "", l.texts
	}
	if l.by != byCredentials {
		c = credentials{keys: [][]string{l.key}}
	}
	if len(c.keys) > 1 {
		r.Missing = "skip"
		comments = append(comments, "The operation accepts several credentials, and has a rule for each.")
	}
	if c.optional {
		comments = append(comments, "Credentials are optional, so the rule counts by address.")
	}
	b.schemes = appendNew(b.schemes, sentences(c.notes)...)
	for _, key := range c.keys {
		r.Key = key
		b.append(r, comments, of)
	}
}

// append adds a rule under a unique name. If the rule does not compile, append adds a rule that counts by address. If
// that rule does not compile either, append adds a problem instead.
func (b *builder) append(r policy.Rule, comments []string, of []*Operation) {
	err := compiles(r)
	if err != nil && len(r.Key) > 0 && !slices.Equal(r.Key, []string{clientIP}) {
		by := r
		by.Key, by.Missing = []string{clientIP}, ""
		if compiles(by) == nil {
			comments = append(slices.Clone(comments), fmt.Sprintf("The rule counts by address, because the key %s is invalid: %v.", strings.Join(r.Key, ", "), err))
			r, err = by, nil
		}
	}
	if err != nil {
		b.Left = append(b.Left, policy.Problem{File: b.d.File, Line: of[0].Line, Message: fmt.Sprintf("%s: %v", of[0], err)})
		return
	}
	for i, name := 2, r.Name; b.own[r.Name] != nil; i++ {
		end := "-" + strconv.Itoa(i)
		r.Name = name[:min(len(name), maxName-len(end))] + end
	}
	b.own[r.Name] = of
	b.Document.Rules = append(b.Document.Rules, r)
	b.comments = append(b.comments, comments)
}

// compiles returns the reason if a rule does not compile.
func compiles(r policy.Rule) error {
	if r.Name == "" {
		r.Name, r.Limit = "rule", proposedRead
	}
	_, err := policy.Compile(policy.Document{Rules: []policy.Rule{r}})
	if all, ok := errors.AsType[policy.Errors](err); ok && len(all) > 0 {
		return errors.New(all[0].Message)
	}
	return err
}

// patterns returns the patterns for an operation, and notes about other paths that they match.
func (b *builder) patterns(o *Operation) (all, notes []string) {
	for _, base := range o.bases {
		p, wider := pattern(o.Method, base.path+o.Path)
		if all = appendNew(all, p); wider != "" {
			notes = appendNew(notes, wider)
		}
	}
	return all, sentences(notes)
}

// appendNew appends the values that the list all does not contain yet.
func appendNew[T comparable](all []T, values ...T) []T {
	for _, v := range values {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}

// quotaShare is the cost of a request in a metric.
type quotaShare struct {
	metric string
	cost   int64
}

// quotaShares returns the costs of an operation in metrics that have a limit, sorted by metric.
func (b *builder) quotaShares(o *Operation) (all []quotaShare) {
	costs := b.d.costs(o)
	for _, metric := range slices.Sorted(maps.Keys(costs)) {
		if l := b.quotas[metric]; l != nil && len(l.texts) > 0 {
			all = append(all, quotaShare{metric, costs[metric]})
		}
	}
	return all
}

// shared adds the rules for metrics, one for each combination of metric and cost.
func (b *builder) shared(all map[quotaShare][]*Operation) {
	order := slices.SortedFunc(maps.Keys(all), func(x, y quotaShare) int {
		return cmp.Or(strings.Compare(x.metric, y.metric), cmp.Compare(x.cost, y.cost))
	})
	costs := map[string]int{}
	for _, s := range order {
		costs[s.metric]++
	}
	for _, s := range order {
		l := b.quotas[s.metric]
		comments := append([]string{fmt.Sprintf("Operations that cost %d of the metric %s. %s", s.cost, s.metric, l.origin())}, sentences(l.notes)...)
		if costs[s.metric] > 1 {
			comments = append(comments, "Operations with another cost have a rule and a count of their own, because a rule has only one cost.")
		}
		r := policy.Rule{Name: ruleName("quota " + s.metric)}
		if s.cost > 1 {
			r.Cost = policy.Cost{Default: s.cost}
		}
		b.many(r, l, comments, all[s])
	}
}

// general adds the rules for limits of all operations without limits of their own.
func (b *builder) general(limits []*limit, of []*Operation) {
	if len(of) == 0 {
		return
	}
	for _, l := range limits {
		if len(l.texts) > 0 {
			comments := append([]string{"All operations without a limit of their own share this limit. " + l.origin()}, sentences(l.notes)...)
			b.many(policy.Rule{Name: "api"}, l, comments, of)
		}
	}
}

// many adds the rules for a limit that several operations share.
func (b *builder) many(r policy.Rule, l *limit, comments []string, of []*Operation) {
	for _, o := range of {
		match, notes := b.patterns(o)
		r.Match, comments = appendNew(r.Match, match...), appendNew(comments, notes...)
	}
	c := b.d.credentialsOf(of[0])
	if l.by == byCredentials && slices.ContainsFunc(of, func(o *Operation) bool { return !slices.EqualFunc(b.d.credentialsOf(o).keys, c.keys, slices.Equal) }) {
		c = credentials{keys: [][]string{{clientIP}}}
		comments = append(comments, "Its operations require different credentials, so it counts by address.")
	}
	b.addKeys(r, l, c, comments, of)
}

// overlaps adds a comment to each rule that also counts other operations.
func (b *builder) overlaps() {
	m, err := newMatcher(&b.Document, b.d)
	if err != nil {
		return // Policy reports the error
	}
	foreign := map[string][]*Operation{}
	for i := range b.d.Operations {
		o := &b.d.Operations[i]
		for _, rule := range m.rules(o) {
			if !slices.Contains(b.own[rule], o) {
				foreign[rule] = append(foreign[rule], o)
			}
		}
	}
	for i := range b.Document.Rules {
		if others := foreign[b.Document.Rules[i].Name]; len(others) > 0 {
			b.comments[i] = append(b.comments[i], "It also counts "+list(others)+", because all matching rules apply.")
		}
	}
}

// maxListed bounds the operations that are named in a comment.
const maxListed = 5

// list names the first operations, and gives the number of the others.
func list(all []*Operation) string {
	var b strings.Builder
	for i, o := range all {
		if more := len(all) - i; i == maxListed && more > 1 {
			fmt.Fprintf(&b, " and %d more", more)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(o.String())
	}
	return b.String()
}

const maxName = 64

var (
	humps     = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	noNameRun = regexp.MustCompile(`[^a-z0-9._]+`)
)

// ruleName converts a text to a valid name of a rule: getPetById becomes get-pet-by-id.
func ruleName(text string) string {
	name := strings.ToLower(humps.ReplaceAllString(text, "$1-$2"))
	name = strings.Trim(noNameRun.ReplaceAllString(name, "-"), "-")
	return cmp.Or(strings.TrimRight(name[:min(len(name), maxName)], "-"), "operation")
}
