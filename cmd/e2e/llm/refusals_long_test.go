//go:build long

package llm

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// refusing denies the second call of a case, or the first call if it can never fit.
const refusing = `
version: 1
prices: {"*": {input: 1, output: 1}}
rules:
  - {name: seconds, match: POST /v1/, headers: {X-Case: seconds}, key: [api_key], limit: 1/6s, answer: llm}
  - {name: minute, match: POST /v1/, headers: {X-Case: minute}, key: [api_key], limit: 1/minute, answer: llm}
  - {name: hour, match: POST /v1/, headers: {X-Case: hour}, key: [api_key], limit: 1/hour, answer: llm}
  - {name: tokens, match: POST /v1/, headers: {X-Case: tokens}, key: [api_key], limit: 1000/minute, cost: {tokens: total}, answer: llm}
  - {name: money, match: POST /v1/, headers: {X-Case: money}, key: [api_key], limit: 0.00002 USD/day, cost: {usd: prices, estimate: 20}, answer: llm}
  - {name: reserved, match: POST /v1/, headers: {X-Case: reserved}, key: [api_key], limit: 0.001 USD/day, cost: {usd: prices, estimate: {output: 700}}, answer: llm}
  - {name: abusers, match: POST /v1/, headers: {X-Case: blocked}, block: true, answer: llm}
  - {name: signed, match: POST /v1/, headers: {X-Case: malformed}, key: [header:X-Team], missing: refuse, limit: 1/hour, answer: llm}
`

// refusal is the error that a program should get from an SDK.
type refusal struct {
	status             int
	class              string // of npm's packages
	openAI, code, anth string // the types of the two APIs, and OpenAI's code
	message            string // a part of it
	calls              int
	retry              string // X-Should-Retry
}

// Every SDK reads the class, the type and the code of a denial, and does not retry a call that is denied for a long
// time.
func TestLongSDKsRefused(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, refusing)
	for name, want := range map[string]refusal{
		"hour":      {429, "RateLimitError", "requests", "rate_limit_exceeded", "rate_limit_error", "Limit hour: 1 per 3600s. Retry in ", 1, "false"},
		"tokens":    {429, "RateLimitError", "tokens", "rate_limit_exceeded", "rate_limit_error", "at most 1000 at once", 1, "false"},
		"money":     {429, "RateLimitError", "insufficient_quota", "insufficient_quota", "rate_limit_error", "Limit money: 0.00002 USD per 86400s. Retry in ", 1, "false"},
		"blocked":   {403, "PermissionDeniedError", "permission_error", "blocked", "permission_error", "Rule abusers blocks the request.", 1, "false"},
		"malformed": {400, "BadRequestError", "invalid_request_error", "missing_key", "invalid_request_error", "The request lacks header:X-Team.", 1, "false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everySDK(t, func(t *testing.T, c call) {
				c.URL, c.Retries, c.Key, c.Headers = g.URL, 2, "refused-"+name+"-"+c.SDK+"-"+c.API, map[string]string{"X-Case": name}
				switch name {
				case "tokens":
					c.MaxTokens = 5000
				case "hour", "money":
					if first := ask(t, c); first.Error != nil {
						t.Fatalf("the first call is denied: %s", asJSON(t, first))
					}
				}
				want.check(t, &c, ask(t, c))
			})
		})
	}
}

func (want *refusal) check(t *testing.T, c *call, got answer) {
	t.Helper()
	e := got.Error
	if e == nil {
		t.Fatalf("no error: %s", asJSON(t, got))
	}
	kind, code, status, isGo := want.openAI, want.code, want.status, strings.HasSuffix(c.SDK, "-go")
	if c.API == "messages" {
		kind, code = want.anth, ""
	}
	if e.Status != status || e.Type != kind || e.Code != code || !isGo && e.Class != want.class || !strings.Contains(e.Message, want.message) {
		t.Errorf("%s\nwant %+v", asJSON(t, e), want)
	}
	header := http.Header{}
	for name, value := range e.Headers {
		header.Set(name, value)
	}
	if got.Calls != want.calls || header.Get("X-Should-Retry") != want.retry {
		t.Errorf("%d calls, X-Should-Retry %q, want %d and %q", got.Calls, header.Get("X-Should-Retry"), want.calls, want.retry)
	}
	limit := "X-Ratelimit-Limit-Tokens"
	if c.API == "messages" {
		limit = "Anthropic-Ratelimit-Tokens-Limit"
	}
	if want.status == 429 && want.openAI == "tokens" && want.retry == "false" && header.Get(limit) != "1000" {
		t.Errorf("the limit in tokens is missing: %v", e.Headers)
	}
}

// An SDK waits as long as the denial asks, and its next call passes.
func TestLongSDKsWait(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, refusing)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Retries, c.Key, c.Headers = g.URL, 2, "waits-"+c.SDK+"-"+c.API, map[string]string{"X-Case": "seconds"}
		use(t, &c)
		began := time.Now()
		if got := ask(t, c); got.Error != nil || got.Calls != 2 {
			t.Errorf("after %v: %s", time.Since(began), asJSON(t, got))
		}
	})
}

// If a denial asks for at most a minute, an SDK waits as long as Retry-After-Ms asks.
func TestLongSDKsSchedule(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, refusing)
	everySDK(t, func(t *testing.T, c call) {
		if strings.HasSuffix(c.SDK, "-go") {
			return // its waits cannot be skipped
		}
		c.URL, c.Retries, c.Key, c.Headers, c.SkipWaits = g.URL, 2, "schedules-"+c.SDK+"-"+c.API, map[string]string{"X-Case": "minute"}, true
		use(t, &c)
		got := ask(t, c)
		if got.Error == nil || got.Error.Status != 429 || got.Calls != 3 || len(got.Waits) != 2 {
			t.Fatalf("%s", asJSON(t, got))
		}
		last, err := strconv.ParseFloat(got.Error.Headers["retry-after-ms"], 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range got.Waits {
			if wait < last || wait > 60_000 {
				t.Errorf("the SDK waits %v ms, and the last denial asks for %v", got.Waits, last)
			}
		}
	})
}

// use sends the one request of a key that the limit allows. It builds the program of the SDK first, because the next
// call would otherwise come too late.
func use(t *testing.T, c *call) {
	t.Helper()
	if strings.HasSuffix(c.SDK, "-go") {
		if _, err := modelClient(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.URL+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Case", c.Headers["X-Case"])
	r.Header.Set("Authorization", "Bearer "+c.Key)
	if strings.HasPrefix(c.SDK, "anthropic") {
		r.Header.Del("Authorization")
		r.Header.Set("X-Api-Key", c.Key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode == http.StatusTooManyRequests {
		t.Fatal("the first request is denied")
	}
}

// A budget that a stream under way has reserved is not exhausted: SDKs retry within seconds, and a call passes after
// the stream has ended.
func TestLongSDKsReserved(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, refusing)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Key, c.Headers = g.URL, "reserved-"+c.SDK+"-"+c.API, map[string]string{"X-Case": "reserved"}
		leave := stream(t, &c)
		want := refusal{429, "RateLimitError", "tokens", "rate_limit_exceeded", "rate_limit_error", "Requests under way have reserved what is left.", 1, "true"}
		if !strings.HasSuffix(c.SDK, "-go") {
			c.Retries, c.SkipWaits, want.calls = 2, true, 3
		}
		got := ask(t, c)
		want.check(t, &c, got)
		for _, wait := range got.Waits {
			if wait < 1000 || wait > 30_000 {
				t.Errorf("the SDK waits %v ms", got.Waits)
			}
		}
		leave()
		testkit.Await(t, "the stream is settled", func() bool { return charged(t, g, c.Key)["reserved"] < 200 })
		if got := ask(t, c); got.Error != nil || got.Calls != 1 {
			t.Error(asJSON(t, got))
		}
	})
}

// stream starts a slow stream with the key and the fields of c. leave disconnects the client.
func stream(t *testing.T, c *call) (leave func()) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	body := strings.NewReader(`{"model":"sample-slow","stream":true,"messages":[{"role":"user","content":"Write 400 words"}]}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v1/chat/completions", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Case", c.Headers["X-Case"])
	r.Header.Set("Authorization", "Bearer "+c.Key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	if _, err := response.Body.Read(make([]byte, 1)); response.StatusCode != http.StatusOK || err != nil {
		t.Fatalf("%s, %v", response.Status, err)
	}
	return leave
}

// A gateway that cannot decide looks like an overloaded server, and SDKs retry after a second.
func TestLongSDKsUnavailable(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, "version: 1\nrules: [{name: closed, match: POST /v1/, limit: 1/hour, on_error: deny, answer: llm}]", "--store", "redis://127.0.0.1:1")
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Retries, c.SkipWaits = g.URL, 1, true
		want := refusal{503, "InternalServerError", "server_error", "temporary_reduced_capacity", "overloaded_error", "The request cannot be taken at the moment.", 2, ""}
		if c.API == "messages" {
			want.status, want.class = 529, "OverloadedError"
		}
		got := ask(t, c)
		want.check(t, &c, got)
		if !strings.HasSuffix(c.SDK, "-go") && (len(got.Waits) != 1 || got.Waits[0] != 1000) {
			t.Errorf("the SDK waits %v ms", got.Waits)
		}
	})
}
