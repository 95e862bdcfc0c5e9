package console

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// What the admin API answers, as far as pages need it.

// item is one of a list.
type item struct {
	ID        string    `json:"id"`
	Source    string    `json:"source"`
	ETag      string    `json:"etag"`
	UpdatedAt time.Time `json:"updated_at"`
	UpdatedBy string    `json:"updated_by"`
	Disabled  bool      `json:"disabled"`
	// Shown is what stands for the key of an override that the caller is not to see.
	Shown     string          `json:"shown"`
	Pseudonym string          `json:"pseudonym"`
	Document  json.RawMessage `json:"document"`
}

// shownKey is the key of an override for people.
func (i *item) shownKey(s *server, rule string, key map[string]string) string {
	if i.Shown != "" {
		return withPseudonym(i.Shown, i.Pseudonym)
	}
	return withPseudonym(s.shownParts(rule, key), i.Pseudonym)
}

type itemPage struct {
	Items []item `json:"items"`
	Next  string `json:"next"`
	Total int    `json:"total"`
}

// maxItems is how many of a list are read for one page.
const maxItems = 20000

// list reads the items of a resource such as "/v1/rules" that a query asks for, at most maxItems, and
// reports whether there are more.
func (c *call) list(path string, q url.Values) (all []item, more bool, err error) {
	asked := url.Values{"limit": {"1000"}}
	maps.Copy(asked, q)
	for {
		var page itemPage
		if err := c.do("GET", path+"?"+asked.Encode(), nil, &page); err != nil {
			return nil, false, err
		}
		if all = append(all, page.Items...); page.Next == "" || len(all) >= maxItems {
			return all, page.Next != "", nil
		}
		asked.Set("cursor", page.Next)
	}
}

// item returns one of a resource, or nil. Lists are in the order of IDs, so it begins the page behind
// what comes just before it, however many there are.
func (c *call) item(path, id string) (*item, error) {
	if id == "" {
		return nil, nil
	}
	before := id[:len(id)-1]
	if last := id[len(id)-1]; last > 0 {
		before += string([]byte{last - 1, 0xff})
	}
	q := url.Values{"limit": {"1"}, "cursor": {base64.RawURLEncoding.EncodeToString([]byte(before))}}
	var page itemPage
	if err := c.do("GET", path+"?"+q.Encode(), nil, &page); err != nil {
		return nil, err
	}
	if len(page.Items) == 0 || page.Items[0].ID != id {
		return nil, nil
	}
	return &page.Items[0], nil
}

// inForce is the policy in force, without its overrides and subjects.
type inForce struct {
	Version  string `json:"version"`
	Document struct {
		Rules []json.RawMessage `json:"rules"`
		Tiers policy.Tiers      `json:"tiers"`
	} `json:"document"`
	Rules []struct {
		Name   string `json:"name"`
		Source string `json:"source"`
	} `json:"rules"`
	Overrides int      `json:"overrides"`
	Subjects  int      `json:"subjects"`
	Database  bool     `json:"database"`
	Warnings  []string `json:"warnings"`
	Blocks    []struct {
		Subject string    `json:"subject"`
		Until   time.Time `json:"until"`
	} `json:"blocks"`

	document json.RawMessage // all of the document
}

func (p *inForce) UnmarshalJSON(data []byte) error {
	type plain inForce
	var whole struct {
		Document json.RawMessage `json:"document"`
	}
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	p.document = whole.Document
	return nil
}

// policyInForce reads it.
func (c *call) policyInForce() (*inForce, error) {
	p := &inForce{}
	return p, c.do("GET", "/v1/policy", nil, p)
}

// ruleInForce is a rule as the policy in force has it.
type ruleInForce struct {
	policy.Rule
	JSON json.RawMessage
}

// rules returns the rules in the order of the document.
func (p *inForce) rules() ([]ruleInForce, error) {
	all := make([]ruleInForce, len(p.Document.Rules))
	for i, text := range p.Document.Rules {
		all[i].JSON = text
		if err := json.Unmarshal(text, &all[i].Rule); err != nil {
			return nil, err
		}
		if i < len(p.Rules) {
			all[i].Source = p.Rules[i].Source
		}
	}
	return all, nil
}

// rule returns the rule of that name, or a problem.
func (p *inForce) rule(name string) (*ruleInForce, error) {
	all, err := p.rules()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(r ruleInForce) bool { return r.Name == name })
	if i < 0 {
		return nil, problemf(http.StatusNotFound, "There is no rule %s in the policy in force.", printable(name))
	}
	return &all[i], nil
}

// subjectState is what a rule has counted for a subject.
type subjectState struct {
	Rule         string            `json:"rule"`
	Source       string            `json:"source"`
	Key          map[string]string `json:"key"`
	Blocked      bool              `json:"blocked"`
	BlockedUntil time.Time         `json:"blocked_until"`
	Override     *overrideState    `json:"override"`
	Limits       []limitState      `json:"limits"`
}

type overrideState struct {
	ID       string          `json:"id"`
	Source   string          `json:"source"`
	Document policy.Override `json:"document"`
}

// Words is what the override makes of the limit, and until when.
func (o *overrideState) Words() string {
	return overrideWords(&o.Document) + ", " + untilWords(o.Document.Until)
}

type limitState struct {
	Name      string    `json:"name"`
	Limit     string    `json:"limit"`
	Algorithm string    `json:"algorithm"`
	From      string    `json:"from"`
	Capacity  int64     `json:"capacity"`
	Used      int64     `json:"used"`
	Remaining int64     `json:"remaining"`
	FullAt    time.Time `json:"full_at"`
	Shadow    bool      `json:"shadow"`
}

// Percent returns how much of the limit is used.
func (l limitState) Percent() int64 {
	if l.Capacity < 1 {
		return 0
	}
	return min(100, (l.Used*100+l.Capacity-1)/l.Capacity)
}

// Fullness is empty, part, most or all: how the bar is drawn.
func (l limitState) Fullness() string {
	switch p := l.Percent(); {
	case p >= 100:
		return "all"
	case p >= 80:
		return "most"
	case p > 0:
		return "part"
	}
	return "empty"
}

// Words is the limit as people say it.
func (l limitState) Words() string {
	if l.inFlight() {
		return inFlightWords(l.Capacity)
	}
	return limitWords(l.Limit, l.Algorithm)
}

// inFlight reports whether the limit is of requests under way.
func (l limitState) inFlight() bool { return l.Algorithm == "in_flight" }

// subjectStates asks what all rules that count by a key, or the one of that name, have counted.
func (c *call) subjectStates(rule string, key map[string]string) ([]subjectState, error) {
	q := url.Values{}
	if rule != "" {
		q.Set("rule", rule)
	}
	for part, v := range key {
		q.Set("key."+part, v)
	}
	var answer struct {
		Rules []subjectState `json:"rules"`
	}
	err := c.do("GET", "/v1/subjects?"+q.Encode(), nil, &answer)
	return answer.Rules, err
}

// changedSubject is what a change of a subject makes of it.
type changedSubject struct {
	Before subjectState `json:"before"`
	After  subjectState `json:"after"`
}

// difference is what a change of an item would do.
type difference struct {
	Before     json.RawMessage `json:"before"`
	After      json.RawMessage `json:"after"`
	BeginsAnew []struct {
		Rule, From, Was, Is string
	} `json:"begins_anew"`
	Warnings []string `json:"warnings"`
}

// auditEntry is one change.
type auditEntry struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"`
	Kind   string          `json:"kind"`
	Target string          `json:"target"`
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}

// yamlOf writes entries of a list of a policy, such as "rules", given as JSON, as people do in a
// file, without the head of the document.
func yamlOf(list string, entries ...json.RawMessage) (string, error) {
	var b strings.Builder
	b.WriteString(`{"version":1,`)
	if list != "rules" {
		b.WriteString(`"rules":[],`)
	}
	b.WriteString(`"` + list + `":[`)
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(e)
	}
	b.WriteString("]}")
	doc, err := policyfile.Decode("policy.json", []byte(b.String()))
	if err != nil {
		return "", err
	}
	text, err := policyfile.Encode("policy.yaml", doc)
	if err != nil {
		return "", err
	}
	_, below, _ := strings.Cut(string(text), "\n"+list+":\n")
	return list + ":\n" + below, nil
}

// decoded reads JSON of the admin API.
func decoded[T any](data json.RawMessage) (*T, error) {
	v := new(T)
	err := json.Unmarshal(data, v)
	return v, err
}
