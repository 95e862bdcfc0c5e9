package control

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Explanation is what would become of a request, and why.
type Explanation struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	Client string `json:"client"`
	// Tier is left out if no rule asks for one.
	Tier        *TierExplanation  `json:"tier,omitempty"`
	Allowed     bool              `json:"allowed"`
	Exempt      bool              `json:"exempt"`
	Degraded    bool              `json:"degraded"`
	Unavailable bool              `json:"unavailable"`
	Missing     string            `json:"missing,omitempty"`
	Blocked     string            `json:"blocked,omitempty"` // the rule
	RetryAfter  Wait              `json:"retry_after"`
	Delay       Wait              `json:"delay"`
	Rules       []RuleExplanation `json:"rules"`
	Response    Response          `json:"response"`
}

// Wait is a time in seconds, and less than 0 for ever.
type Wait float64

func waitOf(d time.Duration) Wait {
	if d == sluice.Never {
		return -1
	}
	return Wait(d.Seconds())
}

// Duration returns the time, which is [sluice.Never] for ever.
func (w Wait) Duration() time.Duration {
	if w < 0 {
		return sluice.Never
	}
	return time.Duration(math.Round(float64(w)*1e6)) * time.Microsecond
}

// TierExplanation is the tier of a request, and what says it.
type TierExplanation struct {
	Name   string `json:"name"` // empty: none
	From   string `json:"from"` // "subjects", a part of the request, or "default"
	Source string `json:"source,omitempty"`
	Terms  string `json:"terms,omitempty"` // until when, why and by whom
}

// RuleExplanation is what one rule makes of the request.
type RuleExplanation struct {
	Rule    string `json:"rule"`
	Source  string `json:"source"`
	Applies bool   `json:"applies"`
	Why     string `json:"why"`
	// Key is under which the store counts; to viewers what people are to see of it.
	Key      string         `json:"key,omitempty"`
	Override *OverrideState `json:"override,omitempty"`
	// Enforced is for which share of its subjects the rule refuses, and Watched whether this subject
	// is none of them. Without a share both are left out.
	Enforced string             `json:"enforced,omitempty"`
	Watched  bool               `json:"watched,omitempty"`
	Limits   []LimitExplanation `json:"limits"`
	Share    string             `json:"share,omitempty"` // what the subject has at present of a limit that is shared
	Then     string             `json:"then,omitempty"`  // what the response changes
	// Consistency is "leased" or "synced"; of what is counted strictly it is left out.
	Consistency string `json:"consistency,omitempty"`
	OnError     string `json:"on_error"`
	// OnErrorWhy is what that follows from.
	OnErrorWhy string `json:"on_error_why"`
}

// LimitExplanation is what one limit says.
type LimitExplanation struct {
	Name       string    `json:"name"`
	Limit      string    `json:"limit"`
	Algorithm  string    `json:"algorithm"`
	From       string    `json:"from"`
	Source     string    `json:"source"`
	Shadow     bool      `json:"shadow"`
	Capacity   int64     `json:"capacity"`
	Cost       int64     `json:"cost"`
	Allowed    bool      `json:"allowed"`
	Locked     bool      `json:"locked"`
	RetryAfter Wait      `json:"retry_after"`
	Delay      Wait      `json:"delay"`
	Before     FillState `json:"before"`
	After      FillState `json:"after"`
}

// FillState is how full a limit is at a moment.
type FillState struct {
	Used      int64 `json:"used"`
	Remaining int64 `json:"remaining"`
	FullIn    Wait  `json:"full_in"` // until nothing is used
}

func fillOf(r *policy.Result) FillState {
	return FillState{r.Plan.Capacity - r.Remaining, r.Remaining, waitOf(r.ResetAfter)}
}

// Response is what the decision puts into the response.
type Response struct {
	// Status is 0 if the request passes: then it is that of the upstream.
	Status int         `json:"status"`
	Header http.Header `json:"headers"`
	Body   string      `json:"body"`
	// Own says that it is one of the policy's own answers.
	Own bool `json:"own"`
}

// OverrideTerms are until when the override holds, why and by whom, for people.
func (r *RuleExplanation) OverrideTerms() string {
	if r.Override == nil {
		return ""
	}
	return r.Override.Document.Terms()
}

// Explain looks at what an engine would say of a request, and takes nothing. The encoder is that
// of the door.
func Explain(ctx context.Context, e *policy.Engine, r *policy.Request, encoder *answer.Encoder) *Explanation {
	t := e.Explain(ctx, r)
	d := &t.Decision
	out := &Explanation{
		Method: r.Method, URL: r.Path, Client: t.Client.String(),
		Allowed: d.Allowed, Exempt: d.Exempt, Degraded: d.Degraded, Unavailable: d.Unavailable, Missing: d.Missing, Blocked: d.Blocked,
		RetryAfter: waitOf(d.RetryAfter), Delay: waitOf(d.Delay), Rules: []RuleExplanation{},
	}
	if r.RawQuery != "" {
		out.URL += "?" + r.RawQuery
	}
	if t.TierFrom != "" {
		out.Tier = &TierExplanation{Name: t.Tier, From: t.TierFrom}
		if by := t.TierSubject; by != nil {
			out.Tier.Source, out.Tier.Terms = by.Source, by.Terms()
		}
	}
	p := e.Policy()
	outages := map[string]policy.Outage{} // the policy may be another by now
	for _, o := range p.Outages() {
		outages[o.Rule] = o
	}
	for i := range t.Rules {
		out.Rules = append(out.Rules, explainRule(&t.Rules[i], outages[t.Rules[i].Rule]))
	}
	after := t.After()
	out.Response = respond(p, r.Header, &after, encoder)
	return out
}

func explainRule(t *policy.RuleTrace, outage policy.Outage) RuleExplanation {
	out := RuleExplanation{
		Rule: t.Rule, Source: t.Source, Applies: t.Applies, Why: t.Why, Key: t.Key, Share: t.Share, Then: t.Then, Enforced: t.Enforced, Watched: t.Watched,
		OnError: outage.OnError.String(), OnErrorWhy: outage.Why, Limits: []LimitExplanation{},
	}
	if t.Consistency != sluice.Strict {
		out.Consistency = t.Consistency.String()
	}
	if t.Override != nil {
		out.Override = stateOfOverride(t.Override)
	}
	for i := range t.Results {
		r := &t.Results[i]
		l := LimitExplanation{
			Name: r.Name, Limit: r.Plan.String(), Algorithm: r.Plan.AlgorithmName(), From: r.From, Source: r.Source, Shadow: r.Shadow,
			Capacity: r.Plan.Capacity, Cost: r.Cost, Allowed: r.Allowed, Locked: r.Locked,
			RetryAfter: waitOf(r.RetryAfter), Delay: waitOf(r.Delay), Before: fillOf(r), After: fillOf(&t.After[i]),
		}
		if l.Name == "" {
			l.Name = r.Rule
		}
		out.Limits = append(out.Limits, l)
	}
	return out
}

// respond returns what a door would say.
func respond(p *policy.Policy, header http.Header, d *policy.Decision, encoder *answer.Encoder) Response {
	var said answer.Answer
	out := Response{Header: http.Header{}}
	encoder.Encode(&said, out.Header, d, answer.Client{Header: header, CORS: p.CORS(), Answers: p.Answers()})
	if d.Allowed {
		return out
	}
	out.Status, out.Body = said.Status, string(said.Body())
	encoder.Encode(&said, http.Header{}, d, answer.Client{Header: header})
	out.Own = p.Answers().For(said.Status) != nil
	return out
}

// Explain returns what would become of a request, and why. It takes nothing.
func (c *Control) Explain(ctx context.Context, who Caller, in CheckRequest) (*Explanation, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	if in.Take {
		return nil, BadField("/take", "to explain takes nothing: /v1/check does")
	}
	r, err := in.request()
	if err != nil {
		return nil, err
	}
	out := Explain(ctx, c.engine, r, &c.encoder)
	if !who.Role.May(source.Operator) {
		p := c.engine.Policy()
		for i := range out.Rules {
			if key := &out.Rules[i].Key; *key != "" {
				*key = p.ShownKey(*key)
			}
		}
	}
	return out, nil
}
