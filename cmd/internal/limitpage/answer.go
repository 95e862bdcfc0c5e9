package limitpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Example is a denial as a client receives it.
type Example struct {
	Status int
	Header http.Header
	Body   string
}

// String returns the response.
func (e *Example) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\n", e.Status, http.StatusText(e.Status))
	for _, name := range slices.Sorted(maps.Keys(e.Header)) {
		for _, value := range e.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "\n%s", strings.TrimRight(e.Body, "\r\n"))
	lines := strings.Split(strings.ReplaceAll(b.String(), "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = printable.Line(strings.ReplaceAll(line, "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// still is a store with a constant time, so that the page depends only on the policy.
type still struct{ *memory.Store }

var exampleTime = time.Date(2027, time.January, 4, 12, 0, 0, 0, time.UTC).UnixMicro()

func (s still) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.TakeAt(ctx, exampleTime, charges, receipts)
}

// mostRequests is the maximum number of requests until a rule denies one: the largest in_flight, plus one.
const mostRequests = 1<<16 + 1

// happen decides about requests until the rule denies one. It returns the header of the first answer, and the
// denial.
func happen(ctx context.Context, r *policy.Rule, client answer.Client) (passed http.Header, refused *Example, err error) {
	alone := policy.Rule{Name: r.Name, Key: []string{"const:example"}, InFlight: r.InFlight, Algorithm: r.Algorithm, Penalty: r.Penalty, Answer: r.Answer}
	switch {
	case r.Distinct.Limit != "": // each request has one value
		alone.Distinct = policy.Distinct{Of: "attr:value", Limit: r.Distinct.Limit}
	case r.InFlight == (policy.InFlight{}):
		alone.Limits = r.LimitTexts()
	}
	var prices policy.Prices
	if r.Cost.USD != "" { // the price does not matter, because each request sets its cost
		alone.Cost.USD, prices.Models = r.Cost.USD, map[string]policy.Price{"*": {Input: "1", Output: "1"}}
	}
	if r.Cost.Tokens != "" {
		alone.Cost = policy.Cost{Tokens: r.Cost.Tokens, Estimate: policy.Estimate{Units: 1}}
	}
	p, err := policy.Compile(policy.Document{Prices: prices, Rules: []policy.Rule{alone}})
	if err != nil {
		return nil, nil, err
	}
	engine := policy.NewEngine(still{memory.New()}, p)
	defer engine.ReleaseAll(ctx)
	var encoder answer.Encoder
	var a answer.Answer
	cost := int64(1)
	for i := range mostRequests {
		request := exampleRequest(r)
		request.Cost, request.Attributes = cost, map[string]string{"value": strconv.Itoa(i)}
		d := engine.Decide(ctx, &request)
		if d.Err != nil {
			return nil, nil, d.Err
		}
		header := http.Header{}
		encoder.Encode(&a, header, &d, client)
		if !d.Allowed {
			return passed, &Example{a.HTTPStatus(), header, string(a.Body())}, nil
		}
		if passed == nil {
			passed = header
		}
		cost = 1
		if r.InFlight.Most == 0 {
			cost = max(1, leastLeft(d.Results))
		}
	}
	return nil, nil, errors.New("rule " + r.Name + " denies nothing")
}

// exampleRequest returns a request for which a denial by the rule has the form that clients get.
func exampleRequest(r *policy.Rule) policy.Request {
	out := policy.Request{Method: http.MethodPost, Path: "/", Ends: r.InFlight != policy.InFlight{}}
	if len(r.Match) > 0 && strings.Contains(r.Match[0], "/v1/messages") {
		out.Path = "/v1/messages"
	}
	if r.Answer == "mcp" {
		out.Header = http.Header{"Content-Type": {"application/json"}}
		out.Body = func(int64) ([]byte, error) { return []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`), nil }
	}
	return out
}

// leastLeft returns the smallest number of remaining units of any limit.
func leastLeft(results []policy.Result) int64 {
	least := int64(math.MaxInt64)
	for i := range results {
		r := &results[i]
		least = min(least, r.Plan.Limit.Value(r.Remaining))
	}
	return least
}

// statuses returns the meanings of the statuses of denials.
func statuses(p *policy.Policy) (all []Meaning) {
	unavailable := "The limits are unavailable at the moment. Wait for the time in Retry-After."
	if len(p.Adaptive()) > 0 {
		unavailable = "The service is overloaded, or the limits are unavailable at the moment. Wait for the time in Retry-After."
	}
	for _, m := range []struct {
		status  int
		meaning string
	}{
		{http.StatusTooManyRequests, "The request exceeds a limit. Wait for the time in Retry-After; without it, the request needs more than the limit ever allows."},
		{http.StatusServiceUnavailable, unavailable},
		{http.StatusBadRequest, "The request lacks a value that a limit counts by, or can be read in several ways. It may count for other limits. An unchanged retry is denied again."},
		{http.StatusForbidden, "The caller or the request is blocked. Retries are denied as long as the block lasts."},
	} {
		status := m.status
		if own := p.Answers().For(status); own != nil && own.Status != 0 {
			status = own.Status
		}
		all = append(all, Meaning{fmt.Sprint(status), m.meaning})
	}
	return all
}

// known has the fields of answers. field is the name in an [http.Header].
var known = []struct{ field, name, meaning string }{
	{"Ratelimit-Policy", "RateLimit-Policy", "The limits that the request counted for, by name: q units in w seconds. With qu=\"concurrent-requests\", q requests at the same time."},
	{"Ratelimit", "RateLimit", "The rest of each limit: r units are certainly allowed in the next t seconds, unless other requests use up the same count. More may become available earlier."},
	{"X-Ratelimit-Limit", "X-RateLimit-Limit", "The amount of the tightest limit per window, or at once if that is more."},
	{"X-Ratelimit-Remaining", "X-RateLimit-Remaining", "The remaining amount of the tightest limit."},
	{"X-Ratelimit-Reset", "X-RateLimit-Reset", "The end of the t seconds of the tightest limit, in seconds since 1970 (UTC)."},
	{"X-Ratelimit-Limit-Requests", "X-RateLimit-Limit-Requests", "The limit in requests. The fields with -Remaining- and -Reset- belong to it."},
	{"X-Ratelimit-Limit-Tokens", "X-RateLimit-Limit-Tokens", "The limit in tokens. The fields with -Remaining- and -Reset- belong to it."},
	{"Anthropic-Ratelimit-Requests-Limit", "Anthropic-RateLimit-Requests-Limit", "The limit in requests. The fields with -Remaining and -Reset belong to it."},
	{"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-RateLimit-Tokens-Limit", "The limit in tokens. The fields with -Remaining and -Reset belong to it."},
	{"Retry-After", "Retry-After", "On denials: the seconds until the request fits, rounded up."},
	{"Retry-After-Ms", "Retry-After-Ms", "Retry-After in milliseconds. X-Should-Retry is false if an SDK should not retry by itself."},
	{"Content-Type", "Content-Type", "On denials: the media type of the body, chosen by Accept."},
	{"Cache-Control", "Cache-Control", "Denials must not be cached."},
}

// meanings returns the meanings of the fields of answers.
func meanings(headers ...http.Header) (all []Meaning) {
	for _, k := range known {
		if slices.ContainsFunc(headers, func(h http.Header) bool { return h[k.field] != nil }) {
			all = append(all, Meaning{k.name, k.meaning})
		}
	}
	return all
}

// knownMembers are the members of the built-in bodies.
var knownMembers = []Meaning{
	{"type", "The type of the problem (RFC 9457)."},
	{"title", "The status in words."},
	{"status", "The status."},
	{"detail", "An explanation for people. Programs should not parse it."},
	{"violated-policies", "The names of the limits that denied the request."},
	{"error", "The reason, as a word for programs."},
	{"retry_after", "The seconds of Retry-After."},
}

// membersOfError are the members of error bodies for SDKs of language models and for MCP clients.
var membersOfError = []Meaning{
	{"type", "The kind of error, as a word for programs."},
	{"code", "The reason, for programs."},
	{"message", "An explanation for people. Programs should not parse it."},
	{"data", "The seconds of Retry-After and the limit that denied the request."},
}

// members returns the meanings of the members of a built-in body.
func (e *Example) members() (all []Meaning) {
	var form struct {
		Error map[string]json.RawMessage `json:"error"`
	}
	if strings.HasPrefix(e.Header.Get("Content-Type"), "application/json") && json.Unmarshal([]byte(e.Body), &form) == nil {
		for _, m := range membersOfError {
			if form.Error[m.Name] != nil {
				all = append(all, Meaning{"error." + m.Name, m.Says})
			}
		}
		return all
	}
	var body map[string]json.RawMessage
	if !strings.HasPrefix(e.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal([]byte(e.Body), &body) != nil {
		return nil
	}
	for _, m := range knownMembers {
		if body[m.Name] != nil {
			all = append(all, m)
		}
	}
	return all
}
