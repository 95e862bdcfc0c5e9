package control

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Explanation is the decision about a described request, and the reasons for it.
type Explanation struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	Client string `json:"client"`
	// Tier is omitted if no rule needs it.
	Tier        *TierExplanation  `json:"tier,omitempty"`
	Allowed     bool              `json:"allowed"`
	Exempt      bool              `json:"exempt"`
	Degraded    bool              `json:"degraded"`
	Unavailable bool              `json:"unavailable"`
	Missing     string            `json:"missing,omitempty"`
	Blocked     string            `json:"blocked,omitempty"`    // the rule under which the request is blocked
	Overloaded  string            `json:"overloaded,omitempty"` // the rule whose automatic limit denies the request
	RetryAfter  Wait              `json:"retry_after"`
	Delay       Wait              `json:"delay"`
	Rules       []RuleExplanation `json:"rules"`
	// Disabled has the rules of the database that do not apply, because they are disabled.
	Disabled []string `json:"disabled,omitempty"`
	Response Response `json:"response"`
}

// Wait is a time in seconds. A negative Wait never ends.
type Wait float64

func waitOf(d time.Duration) Wait {
	if d == sluice.Never {
		return -1
	}
	return Wait(d.Seconds())
}

// Duration returns the Wait as a duration, or [sluice.Never] for one that never ends.
func (w Wait) Duration() time.Duration {
	if w < 0 {
		return sluice.Never
	}
	return time.Duration(math.Round(float64(w)*1e6)) * time.Microsecond
}

// TierExplanation is the tier of a request, and its source.
type TierExplanation struct {
	Name   string `json:"name"` // empty: none
	From   string `json:"from"` // "subjects", a key part, or "default"
	Source string `json:"source,omitempty"`
	Terms  string `json:"terms,omitempty"` // the end, the reason and the author
}

// RuleExplanation explains the decision of one rule.
type RuleExplanation struct {
	Rule    string `json:"rule"`
	Source  string `json:"source"`
	Applies bool   `json:"applies"`
	Why     string `json:"why"`
	// Key is the key in the store. For viewers, the rule's show_key shortens or hashes it.
	Key      string         `json:"key,omitempty"`
	Override *OverrideState `json:"override,omitempty"`
	// Enforced is the rollout percentage of the rule. Watched reports that the rule is not enforced for this
	// subject. Both are omitted without a rollout.
	Enforced string             `json:"enforced,omitempty"`
	Watched  bool               `json:"watched,omitempty"`
	Limits   []LimitExplanation `json:"limits"`
	Share    string             `json:"share,omitempty"` // the present allocation of the subject
	Then     string             `json:"then,omitempty"`  // the effect of the response on the count
	Load     *LoadExplanation   `json:"load,omitempty"`  // the automatic limit of the rule
	// Consistency is "leased" or "synced". It is omitted if it is strict.
	Consistency string `json:"consistency,omitempty"`
	OnError     string `json:"on_error"`
	// OnErrorWhy is the reason for OnError.
	OnErrorWhy string `json:"on_error_why"`
}

// LoadExplanation explains the decision of an automatic limit of requests in flight.
type LoadExplanation struct {
	Class    string `json:"class"` // the class of the request
	Allowed  bool   `json:"allowed"`
	Shadow   bool   `json:"shadow"`
	Known    bool   `json:"known"` // false: this instance has not allowed a request of the key yet, so the numbers are unknown
	Limit    int64  `json:"limit"` // the limit for the class "normal"
	InFlight int64  `json:"in_flight"`
	// Base is the latency of the upstream without a queue, and Latency is the present latency. Both are in seconds,
	// or null if unknown.
	Base    *float64 `json:"base"`
	Latency *float64 `json:"latency"`
}

func explainLoad(t *policy.LoadTrace) *LoadExplanation {
	s := &t.State
	return &LoadExplanation{
		Class: t.Class, Allowed: t.Allowed, Shadow: t.Shadow, Known: s.Rule != "",
		Limit: s.Limit, InFlight: s.InFlight, Base: seconds(s.Base), Latency: seconds(s.Latency),
	}
}

// LimitExplanation explains the decision of one limit.
type LimitExplanation struct {
	Name      string `json:"name"`
	Limit     string `json:"limit"`
	Algorithm string `json:"algorithm"`
	From      string `json:"from"`
	Source    string `json:"source"`
	Shadow    bool   `json:"shadow"`
	Marks     bool   `json:"marks,omitempty"` // a request that does not fit is allowed with a mark
	// For a limit in USD, Capacity, Cost, Before and After are in micro-USD. USD has Capacity, Cost and the numbers of
	// Before as decimal text.
	Capacity   int64     `json:"capacity"`
	Cost       int64     `json:"cost"`
	USD        *Amounts  `json:"usd,omitempty"`
	Unit       string    `json:"unit,omitempty"` // "tokens" if responses report the cost in tokens
	Allowed    bool      `json:"allowed"`
	Locked     bool      `json:"locked"`
	RetryAfter Wait      `json:"retry_after"`
	Delay      Wait      `json:"delay"`
	Before     FillState `json:"before"`
	After      FillState `json:"after"`
}

// FillState is the state of a limit at one time.
type FillState struct {
	Used      int64 `json:"used"`
	Remaining int64 `json:"remaining"`
	FullIn    Wait  `json:"full_in"` // the time until the whole limit is available
}

// Text formats a number of the limit, as in "0.50 USD", "1200 tokens" or "12".
func (l *LimitExplanation) Text(n int64) string { return textOf(l.USD, l.Unit, n) }

func fillOf(r *policy.Result) FillState {
	l := &r.Plan.Limit
	return FillState{l.Value(r.Plan.Capacity - r.Remaining), l.Value(r.Remaining), waitOf(r.ResetAfter)}
}

// Response has the fields that the decision adds to the response of an allowed request, or the whole response of a
// denial.
type Response struct {
	// Status is 0 if the request is allowed, because the upstream sets the status.
	Status int         `json:"status"`
	Header http.Header `json:"headers"`
	Body   string      `json:"body"`
	// Own reports whether the body comes from the policy's answers.
	Own bool `json:"own"`
}

// OverrideTerms returns the end, the reason and the author of the override as text.
func (r *RuleExplanation) OverrideTerms() string {
	if r.Override == nil {
		return ""
	}
	return r.Override.Document.Terms()
}

// Explain explains the decision that an engine would make about a request, without charging the request. encoder is
// the listener's encoder of answers.
func Explain(ctx context.Context, e *policy.Engine, r *policy.Request, encoder *answer.Encoder) *Explanation {
	t := e.Explain(ctx, r)
	d := &t.Decision
	out := &Explanation{
		Method: r.Method, URL: r.Path, Client: t.Client.String(),
		Allowed: d.Allowed, Exempt: d.Exempt, Degraded: d.Degraded, Unavailable: d.Unavailable, Missing: d.Missing, Blocked: d.Blocked, Overloaded: d.Overloaded,
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
	outages := map[string]policy.Outage{} // the policy may have changed since the decision
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
	if t.Load != nil {
		out.Load = explainLoad(t.Load)
	}
	for i := range t.Results {
		r := &t.Results[i]
		l := LimitExplanation{
			Name: r.Name, Limit: r.Plan.String(), Algorithm: r.Plan.AlgorithmName(), From: r.From, Source: r.Source, Shadow: r.Shadow, Marks: r.Marks,
			Capacity: r.Plan.Limit.Value(r.Plan.Capacity), Cost: r.Plan.Limit.Value(r.Cost), Allowed: r.Allowed, Locked: r.Locked,
			RetryAfter: waitOf(r.RetryAfter), Delay: waitOf(r.Delay), Before: fillOf(r), After: fillOf(&t.After[i]),
		}
		if l.Name == "" {
			l.Name = r.Rule
		}
		if l.USD = AmountsOf(r.Plan.Limit.Money > 0, l.Capacity, l.Before.Used, l.Before.Remaining); l.USD != nil {
			l.USD.Cost = printable.FormatDecimal(l.Cost)
		}
		if r.Unit == policy.Tokens {
			l.Unit = r.Unit.String()
		}
		out.Limits = append(out.Limits, l)
	}
	return out
}

// respond returns the response that a listener would send.
func respond(p *policy.Policy, header http.Header, d *policy.Decision, encoder *answer.Encoder) Response {
	var reply answer.Answer
	out := Response{Header: http.Header{}}
	encoder.Encode(&reply, out.Header, d, answer.Client{Header: header, Fields: p.Fields(), CORS: p.CORS(), Answers: p.Answers()})
	if d.Allowed {
		return out
	}
	out.Status, out.Body = reply.Status, string(reply.Body())
	encoder.Encode(&reply, http.Header{}, d, answer.Client{Header: header, Fields: p.Fields()})
	out.Own = p.Answers().For(reply.Status) != nil
	return out
}

// Explain explains the decision about a request, without charging the request.
func (c *Control) Explain(ctx context.Context, who Caller, in CheckRequest) (*Explanation, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	if in.Take {
		return nil, BadField("/take", "explain does not charge: use /v1/check")
	}
	r, err := in.request()
	if err != nil {
		return nil, err
	}
	out := Explain(ctx, c.engine, r, &c.encoder)
	out.Disabled = c.policy.now().contents.Disabled()
	v := c.veilFor(who)
	for i := range out.Rules {
		r := &out.Rules[i]
		r.Key, r.Override = v.key(r.Key), v.state(r.Override)
	}
	return out, nil
}
