package console

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
)

// explainShown is the data of the page that explains a denial. The user gives the ID of the request, the text of
// the 429, or the request itself.
type explainShown struct {
	ID   string
	Said string // the text of the 429

	// Found, Refusals and Unkept are about the request with the ID.
	Found    *control.Refusals
	Refusals []refusalShown
	Unkept   *control.Problem

	Named   []namedRule // the rules that the text names
	Nothing bool        // the text names no rule

	Request   explainForm
	Problem   *control.Problem
	Explained *explanation // nil: no request was given
}

// refusalShown is a recorded denial.
type refusalShown struct {
	control.Refusal
	Known bool // the rule is in force
}

// Why returns why the request was denied.
func (r *refusalShown) Why() string {
	switch r.Because {
	case "limit":
		return "it exceeded the limit"
	case "reserved":
		return "estimates of requests under way had reserved the rest of the limit"
	case "penalty":
		return "it was locked out by the penalty of the rule for exceeding the limit"
	case "block":
		return "it was blocked"
	case "store":
		return "the shared store was unavailable, and on_error is deny"
	case "malformed":
		if what := (&policy.Decision{Missing: r.Missing}).Ambiguous(); what != "" {
			return "its " + printable(what) + " could be read in more than one way"
		}
		return "it lacked " + printable(r.Missing)
	}
	return printable(r.Because)
}

// Waits describes when the client could have retried.
func (r *refusalShown) Waits() string {
	if r.Wait == nil {
		return "waiting does not help"
	}
	return "to retry after " + words.Span(time.Duration(*r.Wait)*time.Second)
}

// namedRule is a rule that a text names.
type namedRule struct {
	Name, Words, Key string
	State            ruleState
}

// explainForm is the form that describes a request.
type explainForm struct{ Method, URL, From, Headers string }

// explanation explains the decision that a request would get now.
type explanation struct {
	*control.Explanation
	Rules []ruleExplained
}

// Words returns the decision in words.
func (e *explanation) Words() string {
	switch {
	case e.Exempt:
		return "Allowed: a rule exempts it."
	case e.Allowed:
		return "Allowed now."
	case e.Missing != "":
		return "Denied: it lacks " + printable(e.Missing) + "."
	case e.Blocked != "":
		return "Denied: the rule " + e.Blocked + " blocks it."
	case e.Unavailable:
		return "Denied: the shared store is unavailable."
	case e.RetryAfter < 0:
		return "Denied: waiting does not help."
	}
	return "Denied: it would be allowed in " + words.Span(max(time.Second, e.RetryAfter.Duration().Round(time.Second))) + "."
}

// Applying returns the rules that apply to the request.
func (e *explanation) Applying() []ruleExplained { return e.rules(true) }

// Not returns the rules that do not apply to the request.
func (e *explanation) Not() []ruleExplained { return e.rules(false) }

func (e *explanation) rules(applies bool) []ruleExplained {
	return slices.DeleteFunc(slices.Clone(e.Rules), func(r ruleExplained) bool { return r.Applies != applies })
}

// ruleExplained is the result of one rule.
type ruleExplained struct {
	control.RuleExplanation
	Shown string // the key as it may be shown
	URL   string // the page of the subject, if the caller may see it
}

// Refuses reports whether a limit of the rule denies the request.
func (r *ruleExplained) Refuses() bool { return r.refuses(false) }

// Would reports whether a limit of the rule in shadow mode would deny the request.
func (r *ruleExplained) Would() bool { return r.refuses(true) }

func (r *ruleExplained) refuses(shadow bool) bool {
	return slices.ContainsFunc(r.Limits, func(l control.LimitExplanation) bool { return !l.Allowed && l.Shadow == shadow })
}

// explainedLimit converts a limit of an explanation to the type that pages show.
func explainedLimit(l control.LimitExplanation) limit {
	s := control.LimitState{Name: l.Name, Limit: l.Limit, Algorithm: l.Algorithm, From: l.From, Capacity: l.Capacity, Used: l.Before.Used, Remaining: l.Before.Remaining, USD: l.USD, Shadow: l.Shadow}
	if l.Before.FullIn > 0 {
		at := time.Now().Add(l.Before.FullIn.Duration())
		s.FullAt = &at
	}
	return limit{s}
}

// explainPage answers with the page. If the query has the ID of a request, the page has the recorded denials of the
// request.
func (s *server) explainPage(c *call) error {
	q := c.URL.Query()
	d := &explainShown{ID: strings.TrimSpace(q.Get("id"))}
	if d.ID != "" {
		if err := c.findRefusals(d); err != nil {
			return err
		}
		if len(d.Refusals) > 0 {
			d.Request = d.Refusals[0].form()
		}
	}
	return s.showExplain(c, http.StatusOK, d)
}

func (s *server) showExplain(c *call, status int, d *explainShown) error {
	if d.Request.Method == "" {
		d.Request.Method = http.MethodGet
	}
	return s.show(c, status, "explain", pageOf("Why was it denied?", "explain", d))
}

// form returns the form with the known parts of the denied request.
func (r *refusalShown) form() explainForm {
	f := explainForm{Method: r.Method, URL: r.Path, From: r.Address}
	if r.Host != "" {
		f.Headers = "Host: " + r.Host
	}
	return f
}

func (c *call) findRefusals(d *explainShown) error {
	found, err := c.s.Control.Refusals(c.Context(), c.caller, d.ID)
	if err != nil {
		d.Unkept, err = c.refusal(err)
		return err
	}
	d.Found = found
	for _, one := range found.Refusals {
		r := refusalShown{Refusal: one}
		_, err := c.rule(r.Rule)
		r.Known = err == nil
		if name, err := c.s.Control.NameOf(c.caller, control.Target{ID: r.SubjectID}); err == nil {
			r.Subject = withPseudonym(r.Subject, name.Pseudonym)
		}
		d.Refusals = append(d.Refusals, r)
	}
	// The rule that denied the request comes first, before rules in shadow mode.
	slices.SortStableFunc(d.Refusals, func(a, b refusalShown) int { return btoi(a.Shadow) - btoi(b.Shadow) })
	return nil
}

// requestIDField finds the ID in the header fields of a 429.
var requestIDField = regexp.MustCompile(`(?im)^[<\s]*x-request-id:\s*(\S+)`)

// explainText explains the text of a 429, or the decision that a request would get now. It changes nothing. Its
// route uses POST because header fields may be secrets, which must not be in a URL.
func (s *server) explainText(c *call) error {
	f := c.PostForm
	d := &explainShown{Said: f.Get("said"), Request: explainForm{f.Get("method"), strings.TrimSpace(f.Get("url")), strings.TrimSpace(f.Get("from")), f.Get("headers")}}
	if d.Said == "" {
		return s.explainRequest(c, d)
	}
	all := c.shadow() != nil
	d.Named = rulesNamed(c.policy, d.Said)
	for i := range d.Named {
		d.Named[i].State.All = all
	}
	if id := requestIDField.FindStringSubmatch(d.Said); id != nil {
		d.ID = id[1]
		if err := c.findRefusals(d); err != nil {
			return err
		}
	}
	d.Nothing = len(d.Named) == 0 && len(d.Refusals) == 0
	return s.showExplain(c, http.StatusOK, d)
}

// explainRequest explains the decision that the request in the form would get.
func (s *server) explainRequest(c *call, d *explainShown) error {
	headers, err := headersOf(d.Request.Headers)
	if err == nil {
		d.Explained, err = c.explain(control.CheckRequest{Method: d.Request.Method, URL: d.Request.URL, Headers: headers, From: d.Request.From})
	}
	if err == nil {
		return s.showExplain(c, http.StatusOK, d)
	}
	if d.Problem, err = c.refusal(err); err != nil {
		return err
	}
	return s.showExplain(c, d.Problem.Status, d)
}

// explain returns the decision that a request would get, with the keys of subjects as show_key of their rules allows.
func (c *call) explain(r control.CheckRequest) (*explanation, error) {
	e, err := c.s.Control.Explain(c.Context(), c.caller, r)
	if err != nil {
		return nil, err
	}
	out, view := &explanation{Explanation: e}, c.view()
	for _, one := range e.Rules {
		r := ruleExplained{RuleExplanation: one, Shown: one.Key}
		if name, err := c.s.Control.Name(c.caller, one.Key); err == nil && c.caller.Role.May(source.Operator) {
			r.Shown = name.Shown
			if seen := seenSubject(view, r.Rule, name.Text); seen != nil && seen.ID != "" {
				r.URL = subjectPage(seen.ID)
			}
		}
		out.Rules = append(out.Rules, r)
	}
	return out, nil
}

// headersOf parses lines "Name: value".
func headersOf(text string) (map[string]string, error) {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !found || name == "" || strings.ContainsAny(name, " \t") {
			return nil, control.Problemf(http.StatusUnprocessableEntity, "Write a header as Name: value, not %s", printable(line))
		}
		all[name] = strings.TrimSpace(value)
	}
	return all, nil
}

// maxText is the maximum number of bytes of a text that rulesNamed reads.
const maxText = 64 << 10

// rulesNamed returns the rules that a text names, either by the name of the rule or by the name of a limit, such as
// "api-1h".
func rulesNamed(p *control.InForce, text string) (all []namedRule) {
	found := map[string]bool{}
	for _, word := range strings.FieldsFunc(text[:min(len(text), maxText)], func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) {
		found[word], found[strings.Trim(word, ".-")] = true, true // a period or a dash may follow the name in a sentence
	}
	for i := range p.Document.Rules {
		r := &p.Document.Rules[i]
		if found[r.Name] || slices.ContainsFunc(limitNames(r), func(name string) bool { return name != "" && found[name] }) {
			all = append(all, namedRule{r.Name, ruleWords(r), keyWords(r), stateOf(r)})
		}
	}
	return all
}

// limitNames returns the names that response fields use for the limits of a rule and its tiers.
func limitNames(r *policy.Rule) (all []string) {
	for _, list := range append(slices.Collect(maps.Values(r.Tiers)), r.Limits) {
		var plans []*sluice.Plan
		for _, text := range list {
			if plan := policy.LimitPlan(text, r.Algorithm); plan != nil {
				plans = append(plans, plan)
			}
		}
		all = append(all, policy.LimitNames(r.Name, plans)...)
	}
	return all
}
