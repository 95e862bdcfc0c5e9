package control

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// CheckRequest describes a request.
type CheckRequest struct {
	Method     string            `json:"method"`
	URL        string            `json:"url"`
	Headers    map[string]string `json:"headers"`
	Body       string            `json:"body"`
	From       string            `json:"from"`
	Attributes map[string]string `json:"attributes"`
	Cost       int64             `json:"cost"`
	// Take charges the request, as if a client had sent it.
	Take bool `json:"take"`
}

// Verdict is the decision about a described request.
type Verdict struct {
	Allowed     bool   `json:"allowed"`
	Exempt      bool   `json:"exempt"`
	Degraded    bool   `json:"degraded"`
	Unavailable bool   `json:"unavailable"`
	Missing     string `json:"missing,omitempty"`
	Blocked     string `json:"blocked,omitempty"`    // the rule under which the request is blocked
	Overloaded  string `json:"overloaded,omitempty"` // the rule whose automatic limit denies the request
	// RetryAfter is in seconds, rounded up. If it is 0 for a denied request, retries cannot succeed.
	RetryAfter int64         `json:"retry_after"`
	Delay      float64       `json:"delay"` // seconds
	Taken      bool          `json:"taken"`
	Client     string        `json:"client"`
	Rules      []RuleVerdict `json:"rules"`
}

// RuleVerdict is the decision of one rule.
type RuleVerdict struct {
	Rule     string         `json:"rule"`
	Source   string         `json:"source"`
	Applies  bool           `json:"applies"`
	Why      string         `json:"why"`
	Key      string         `json:"key,omitempty"`
	Override *OverrideState `json:"override,omitempty"`
	Limits   []LimitVerdict `json:"limits"`
}

// LimitVerdict is the decision of one limit.
type LimitVerdict struct {
	LimitState
	Cost       int64 `json:"cost"`
	Allowed    bool  `json:"allowed"`
	RetryAfter int64 `json:"retry_after"`
}

// documentation is an address for documentation (RFC 5737), which clients do not have.
const documentation = "192.0.2.1"

// Check returns the decision about a request. With Take, which requires the role operator, it also charges the
// request.
func (c *Control) Check(ctx context.Context, who Caller, in CheckRequest) (*Verdict, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	if in.Take && !who.Role.May(source.Operator) {
		return nil, Problemf(http.StatusForbidden, "%s has the role %s, but \"take\" requires the role %s", who.Name, who.Role, source.Operator)
	}
	r, err := in.request()
	if err != nil {
		return nil, err
	}
	trace := c.engine.Explain(ctx, r)
	d := trace.Decision
	if in.Take {
		if d, err = c.take(ctx, who, r); err != nil {
			return nil, err
		}
	}
	out := &Verdict{
		Allowed: d.Allowed, Exempt: d.Exempt, Degraded: d.Degraded, Unavailable: d.Unavailable, Missing: d.Missing, Blocked: d.Blocked, Overloaded: d.Overloaded,
		RetryAfter: wholeSeconds(d.RetryAfter), Delay: d.Delay.Seconds(), Taken: in.Take && d.Allowed && !d.Exempt, Client: trace.Client.String(), Rules: []RuleVerdict{},
	}
	v := c.veilFor(who)
	for i := range trace.Rules {
		r := ruleVerdictOf(&trace.Rules[i])
		r.Key, r.Override = v.key(r.Key), v.state(r.Override)
		out.Rules = append(out.Rules, r)
	}
	return out, nil
}

// take charges a request, and writes an entry to the audit log. The entry omits headers, query and body, because
// they may contain secrets.
func (c *Control) take(ctx context.Context, who Caller, r *policy.Request) (d policy.Decision, err error) {
	if c.policy.database == nil {
		c.logAct(who, "request charged", "method", r.Method)
	}
	r.Door = "admin"
	what := map[string]any{"method": r.Method, "path": r.Path, "from": r.Peer, "cost": r.Cost}
	e := source.Entry{Actor: who.Name, Action: "take", Kind: "request", After: source.Row(JSON(what))}
	err = c.policy.record(ctx, e, func() error { d = c.engine.Decide(ctx, r); return nil })
	return d, err
}

func ruleVerdictOf(t *policy.RuleTrace) RuleVerdict {
	out := RuleVerdict{Rule: t.Rule, Source: t.Source, Applies: t.Applies, Why: t.Why, Key: t.Key, Limits: []LimitVerdict{}}
	if o := t.Override; o != nil {
		out.Override = stateOfOverride(o)
	}
	for i := range t.Results {
		out.Limits = append(out.Limits, limitVerdictOf(&t.Results[i]))
	}
	return out
}

func limitVerdictOf(r *policy.Result) LimitVerdict {
	v := LimitVerdict{limitStateOf(r), r.Cost, r.Allowed, wholeSeconds(r.RetryAfter)}
	if v.USD != nil {
		v.Cost = r.Plan.Limit.Value(r.Cost)
		v.USD.Cost = printable.FormatDecimal(v.Cost)
	}
	return v
}

// wholeSeconds returns a duration in seconds, rounded up, or 0 for [sluice.Never].
func wholeSeconds(d time.Duration) int64 {
	seconds, _ := sluice.Decision{RetryAfter: d}.RetryAfterSeconds()
	return seconds
}

// request returns the described request as a listener would decode it.
func (q *CheckRequest) request() (*policy.Request, error) {
	u, err := url.Parse(q.URL)
	if err != nil || !strings.HasPrefix(u.Path, "/") || u.Opaque != "" {
		return nil, BadField("/url", "write a path as in /api/users, or a whole URL")
	}
	if q.From == "" {
		q.From = documentation
	}
	peer, err := netip.ParseAddr(q.From)
	if err != nil || peer.Zone() != "" {
		return nil, BadField("/from", "write an address, as in %s", documentation)
	}
	if q.Cost < 0 || q.Cost > maxUnits {
		return nil, BadField("/cost", "use a number from 1 to %d", int64(maxUnits))
	}
	r := Request(q.Method, u, peer, http.Header{}, q.Body)
	r.Attributes, r.Cost = q.Attributes, q.Cost
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	for name, value := range q.Headers {
		if http.CanonicalHeaderKey(name) == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	return r, nil
}

// Request returns a request as the gateway would decode it.
func Request(method string, u *url.URL, peer netip.Addr, header http.Header, body string) *policy.Request {
	return &policy.Request{
		Method: method, Host: u.Host, Path: u.EscapedPath(), RawQuery: u.RawQuery, Peer: peer.Unmap(), Header: header,
		Body: func(limit int64) ([]byte, error) {
			if int64(len(body)) > limit {
				return nil, nil
			}
			return []byte(body), nil
		},
	}
}
