// Package limitpage renders the page of sluice describe, which describes the limits of a policy to API clients. The
// page omits rules that apply only to certain clients (the setting "clients"), and rules that protect the API against
// abuse. Packages cli and console import this package; console describes limits with the same words.
package limitpage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Page has the contents of a page.
type Page struct {
	Tiers    []string // the names of the columns of limits
	Costs    bool     // a limit may count a request as more than one unit
	Limits   []Limit
	Further  bool     // some limits are not listed
	Lockouts []string // the names of limits with a lockout
	Statuses []Meaning
	Fields   []Meaning
	Members  []Meaning // the members of a JSON body
	Example  *Example  // nil without a limit that can be shown
}

// Limit is a row of the page's table of limits.
type Limit struct {
	Name    string
	For     Text
	Counted Text
	Cost    Text
	In      []string // one entry for each column in Tiers
}

// Text is a text with code, such as names and patterns, in it.
type Text []Piece

// Piece is a part of a text.
type Piece struct {
	Text string
	Code bool // a request or a response contains the text literally
}

// Meaning is a name and its meaning.
type Meaning struct{ Name, Says string }

// Of returns the page for a document. p is the compiled document.
func Of(ctx context.Context, doc *policy.Document, p *policy.Policy) (*Page, error) {
	page := &Page{}
	var listed []*policy.Rule
	for i := range doc.Rules {
		switch r := &doc.Rules[i]; {
		case r.Exempt || r.Block || r.Shadow || r.Over == "mark" || len(r.Clients) > 0:
		case r.OnlyClassifies() && len(p.Adaptive()) == 0: // the rule has no effect
		case guards(r):
			page.Further = true
		default:
			listed = append(listed, r)
		}
	}
	tiers := page.columns(doc, listed)
	for _, r := range listed {
		page.Limits = append(page.Limits, row(doc, r, tiers))
		if r.Penalty != (policy.Penalty{}) {
			page.Lockouts = append(page.Lockouts, page.Limits[len(page.Limits)-1].Name)
		}
		if cost := page.Limits[len(page.Limits)-1].Cost; cost[0].Text != "1" {
			page.Costs = true
		}
	}
	page.Statuses = statuses(p)
	// The example needs a limit that a fixed number of requests uses up.
	listed = slices.DeleteFunc(listed, func(r *policy.Rule) bool { return r.InFlight.Auto || r.OnlyClassifies() })
	if len(listed) == 0 {
		return page, nil
	}
	one := listed[0]
	if i := slices.IndexFunc(listed, func(r *policy.Rule) bool {
		return len(r.Key) > 0 && r.InFlight == policy.InFlight{} && r.Distinct.Of == ""
	}); i >= 0 {
		one = listed[i]
	}
	passed, refused, err := happen(ctx, one, answer.Client{Fields: p.Fields(), Answers: p.Answers()})
	if err != nil {
		return nil, err
	}
	page.Example = refused
	page.Fields = meanings(passed, refused.Header)
	if slices.ContainsFunc(listed, func(r *policy.Rule) bool { return r.Cost.USD != "" }) {
		page.Fields = append(page.Fields, Meaning{`qu="micro-usd"`, "All numbers of this limit, also in the other fields, are in millionths of a USD."})
	}
	page.Members = refused.members()
	return page, nil
}

// guards reports whether a rule protects against guessing and abuse. Such a rule counts only some statuses, or has a
// body field or the TLS fingerprint in its key, its share or its distinct values. Budgets of tokens or money are never
// such rules.
func guards(r *policy.Rule) bool {
	if r.Cost.Tokens != "" || r.Cost.USD != "" {
		return false // a budget
	}
	return len(r.Count.Status) > 0 || slices.ContainsFunc(slices.Concat(r.Key, r.Share.By, []string{r.Distinct.Of}), func(part string) bool {
		return strings.HasPrefix(part, "body:") || part == "tls_fingerprint"
	})
}

// columns sets the names of the limit columns, and returns the tier of each column. The first column is for clients
// without any of these tiers.
func (p *Page) columns(doc *policy.Document, listed []*policy.Rule) []string {
	all := map[string]bool{}
	for _, r := range listed {
		for name := range r.Tiers {
			all[name] = true
		}
		for name := range r.Share.Weights {
			all[name] = true
		}
	}
	tiers := append([]string{""}, slices.Sorted(maps.Keys(all))...)
	p.Tiers = slices.Clone(tiers)
	p.Tiers[0] = "Limit"
	if len(tiers) > 1 {
		p.Tiers[0] = "all others"
		if d := doc.Tiers.Default; d != "" && !all[d] {
			p.Tiers[0] = d
		}
	}
	return tiers
}

func row(doc *policy.Document, r *policy.Rule, tiers []string) Limit {
	l := Limit{Name: r.Name, For: appliesTo(r), Counted: counted(doc, r), Cost: cost(r)}
	if len(r.Limits) > 1 {
		l.Name = strings.Join(names(r), ", ")
	}
	for _, tier := range tiers {
		l.In = append(l.In, limits(r, tier))
	}
	return l
}

// names returns the names that the limits of a rule have in answers.
func names(r *policy.Rule) []string {
	var plans []*sluice.Plan
	for _, text := range r.Limits {
		if plan := policy.LimitPlan(text, r.Algorithm); plan != nil {
			plans = append(plans, plan)
		}
	}
	return policy.LimitNames(r.Name, plans)
}

// appliesTo describes the requests to which a rule applies. It omits the values of headers, which may be secrets.
// If the rule matches attributes, the description is "some callers", because attributes come from a program.
func appliesTo(r *policy.Rule) (t Text) {
	t = t.list("", r.Match)
	if len(r.Match) == 0 {
		t = t.words("all requests")
	}
	if len(r.Hosts) > 0 {
		t = t.words(" to ").list("", r.Hosts)
	}
	if len(r.Headers) > 0 {
		t = t.words(" with ").list("header ", slices.Sorted(maps.Keys(r.Headers)))
	}
	if len(r.Body) > 0 {
		t = t.words(" with ").list("body field ", slices.Sorted(maps.Keys(r.Body)))
	}
	if len(r.Attributes) > 0 || len(r.NotClients) > 0 {
		t = t.words(" of some callers")
	}
	return t
}

func (t Text) words(s string) Text { return append(t, Piece{s, false}) }

// say appends a sentence. The elements of the parameter code replace each %s.
func (t Text) say(format string, code ...string) Text {
	for i, s := range strings.Split(format, "%s") {
		if i > 0 {
			t = append(t, Piece{code[i-1], true})
		}
		if s != "" {
			t = t.words(s)
		}
	}
	return t
}

func (t Text) list(before string, all []string) Text {
	for i, s := range all {
		if i > 0 {
			t = t.words(", ")
		}
		t = t.say(before+"%s", s)
	}
	return t
}

// counted describes the clients that share a count.
func counted(doc *policy.Document, r *policy.Rule) (t Text) {
	if r.OnlyClassifies() {
		return t.words("nothing")
	}
	t, lacking := parts(doc, r.Key)
	if len(t) == 0 {
		t = t.words("all callers together")
	}
	if len(r.Share.By) > 0 {
		by, lacks := parts(doc, r.Share.By)
		if len(by) > 0 {
			t = append(t.words(", shared fairly "), by...)
		}
		lacking = lacking || lacks
	}
	switch {
	case !lacking:
	case r.Missing == "skip":
		t = t.words(", where the request has one")
	case r.Missing == "refuse":
		t = t.words(", which is required")
	default:
		t = t.words("; requests without one share a count")
	}
	return t
}

// partWords describes all key parts except const. A request may lack api_key, tls_fingerprint, and parts with a name,
// such as header:NAME. It always has the others, such as client_ip.
var partWords = map[string]string{
	"client_ip": "per address (IPv6: per /%d network)", "route": "per route", "host": "per host", "method": "per method",
	"path": "per path", "body": "per value of the body field %s", "tls_fingerprint": "per TLS fingerprint of the client (JA4)",
	"api_key": "per API key (header %s, or the bearer token)", "attr": "per caller, as the service identifies them",
	"header": "per value of the header %s", "cookie": "per value of the cookie %s", "query": "per value of the query parameter %s",
	"jwt": "per claim %s of the bearer token",
}

// parts describes the parts of a key. The result lacking reports whether a request may lack one.
func parts(doc *policy.Document, key []string) (t Text, lacking bool) {
	for _, part := range key {
		kind, name, _ := strings.Cut(part, ":")
		format, known := partWords[kind]
		switch {
		case !known:
			continue // a constant
		case kind == "client_ip":
			format = fmt.Sprintf(format, cmp.Or(doc.IPv6Prefix, 64))
		case kind == "api_key":
			name, lacking = "X-API-Key", true
		case kind == "header" && http.CanonicalHeaderKey(name) == "X-Api-Key":
			format, lacking = "per API key: header %s", true
		default:
			lacking = lacking || name != "" || kind == "tls_fingerprint"
		}
		if len(t) > 0 {
			t = t.words(" and ")
		}
		t = t.say(format, name)
	}
	return t, lacking
}

// cost describes the cost of a request.
func cost(r *policy.Rule) (t Text) {
	switch c := &r.Cost; {
	case c.USD != "":
		return t.words("the price of its tokens, in USD")
	case c.ResponseHeader != "":
		return t.say("the number in %s of the response", c.ResponseHeader)
	case c.ResponseBytes > 0:
		return t.words(fmt.Sprintf("1 for every %s of the response", units(c.ResponseBytes, "byte")))
	case c.Tokens != "":
		return t.words(map[string]string{"total": "the tokens", "uncached": "the tokens, without cached input,", "input": "the input tokens", "output": "the output tokens"}[c.Tokens] + " that the response reports")
	case c.ResponseJSON != nil:
		return t.words("the numbers that the response reports")
	case c.Header != "":
		return t.words(fmt.Sprintf("the cost in the request, at most %d", c.Max))
	default:
		return t.words(fmt.Sprint(max(1, c.Default)))
	}
}

// classWords describes the classes for clients.
var classWords = map[string]string{
	"critical":  "denied last when the service is overloaded",
	"normal":    "denied before critical requests when the service is overloaded",
	"sheddable": "denied first when the service is overloaded",
}

// limits describes the limits of a rule for a tier.
func limits(r *policy.Rule, tier string) string {
	texts := r.LimitTexts()
	if own := r.Tiers[tier]; len(own) > 0 {
		texts = own
	}
	switch {
	case r.OnlyClassifies():
		return classWords[r.Class]
	case r.InFlight.Auto:
		return "as many at the same time as the service can handle; further requests are denied with 503"
	case r.InFlight.Most > 0:
		return texts[0] + " at the same time"
	case r.Share.Of != "":
		s := "a fair share of " + InWords(r.Share.Of, r.Algorithm)
		if len(r.Share.Weights) > 0 {
			s += fmt.Sprintf(", weight %d", max(1, r.Share.Weights[tier]))
		}
		return s
	}
	all := make([]string, len(texts))
	for i, text := range texts {
		if all[i] = InWords(text, r.Algorithm); r.Distinct.Of != "" {
			all[i] = DistinctInWords(r.Distinct.Of, text)
		}
	}
	return strings.Join(all, "; ")
}

// DistinctInWords describes a limit of distinct values of a key part.
func DistinctInWords(part, text string) string {
	count, period, _ := strings.Cut(InWords(text, ""), " per ")
	return fmt.Sprintf("%s different values of %s per %s", count, part, period)
}

// InWords describes a limit.
func InWords(text, algorithm string) string {
	p := policy.LimitPlan(text, algorithm)
	if p == nil {
		return text
	}
	l := p.Limit
	burst := l.Burst
	l.Burst = 0
	_, period, _ := strings.Cut(l.String(), "/")
	s := amount(l, l.Count) + " per " + period
	switch {
	case l.MonthDay == 1:
		s = amount(l, l.Count) + " per calendar month (UTC)"
	case l.MonthDay > 1:
		s = fmt.Sprintf("%s per month (UTC), from day %d on", amount(l, l.Count), l.MonthDay)
	case l.Algorithm == sluice.LeakyBucket:
		s += fmt.Sprintf(", evenly: faster requests wait for their turn, %s at most", amount(l, burst))
	case l.Algorithm == sluice.FixedWindow:
		s += ", in fixed windows"
	case burst != 0 && burst != l.Count:
		s += ", up to " + amount(l, burst) + " at once"
	}
	return s
}

// amount formats units of a limit.
func amount(l sluice.Limit, units int64) string {
	if l.Money == 0 {
		return humanize.Comma(units)
	}
	micro := l.Value(units)
	text := humanize.Comma(micro / 1_000_000)
	if _, part, found := strings.Cut(printable.FormatDecimal(micro), "."); found {
		text += "." + part
	}
	return text + " USD"
}

func units(n int64, what string) string {
	if n == 1 {
		return what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
