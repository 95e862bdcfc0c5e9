package httplimit

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/policy"
)

// marking is a policy that marks the requests that exceed the rules soft and softer, of one request a day.
const marking = `version: 1
rules:
  - {name: soft, match: [/, /v1/], limit: 1/day, over: mark}
  - {name: softer, match: /v1/, limit: 1/day, over: mark}
  - {name: hard, limit: 9/day}
`

// The upstream receives the rules that a request exceeds, and never the client's fields of the same name.
func TestMarks(t *testing.T) {
	t.Parallel()
	var got http.Header
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	handler := Policy(policytest.Engine(t, marking))(Keep(proxy))
	for i, test := range []struct {
		path string
		want []string
	}{
		{"/", nil},
		{"/v1/x", []string{"soft"}},
		{"/v1/x", []string{"soft, softer"}},
		{"/", []string{"soft"}},
	} {
		r := httptest.NewRequest("GET", test.path, nil)
		r.Header = http.Header{
			"Sluice-Over": {"vip", "soft"}, "sluice_over": {"vip"}, "SLUICE.OVER": {"vip"}, "Sluice-Overs": {"kept"}, "Sluiceover": {"kept"},
			"Connection": {"close, sluice-over", "Sluice-Over"},
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 200 || !slices.Equal(got["Sluice-Over"], test.want) {
			t.Errorf("request %d: %d, the upstream receives %q, want %q", i, w.Code, got["Sluice-Over"], test.want)
		}
		for name, values := range got {
			if strings.Contains(strings.Join(values, ","), "vip") {
				t.Errorf("request %d: the client's field %s: %s arrives", i, name, values)
			}
		}
		if got.Get("Sluice-Overs")+got.Get("Sluiceover") != "keptkept" {
			t.Errorf("request %d: fields of other names are removed: %v", i, got)
		}
	}
}

// A policy without marks does not change the field. With AuthOnly, the response contains the mark.
func TestMarksElsewhere(t *testing.T) {
	t.Parallel()
	var got http.Header
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = r.Header })
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Sluice-Over", "mine")
	Policy(policytest.Engine(t, "version: 1\nrules: [{name: a, limit: 1/day}]"))(next).ServeHTTP(httptest.NewRecorder(), r)
	if got.Get("Sluice-Over") != "mine" {
		t.Errorf("the upstream receives %v", got)
	}
	asked := Config{AuthOnly: true}.Policy(policytest.Engine(t, marking))(next)
	for _, want := range []string{"", "soft"} {
		w := httptest.NewRecorder()
		asked.ServeHTTP(w, r)
		if is := w.Header().Get(policy.OverField); is != want || w.Code != 200 {
			t.Errorf("the proxy receives %d, %q, want %q", w.Code, is, want)
		}
	}
}

// The rate-limit fields of an upstream with a language model reach the client only if the limiter does not set such
// fields.
func TestKeepReplacesFieldsOfModels(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("X-Ratelimit-Remaining-Tokens", "999999")
		h.Add("X-Ratelimit-Limit-Requests", "999999")
		h.Add("X-Ratelimit-Reset-Images", "9s")
		h.Add("Anthropic-Ratelimit-Input-Tokens-Remaining", "999999")
		h.Add("X-Request-Id", "theirs")
		if r.URL.Path == "/v1/hints" {
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.WriteHeader(http.StatusOK)
	})
	engine := policytest.Engine(t, `version: 1
rules:
  - {name: tpm, match: POST /v1/, limit: 1000/minute, cost: {tokens: total, estimate: 100}, answer: llm}
  - {name: plain, match: POST /plain, limit: 1000/minute}
`)
	server := httptest.NewServer(Policy(engine)(Keep(upstream)))
	defer server.Close()
	for _, one := range []struct {
		path string
		want map[string]string
	}{
		{"/v1/chat/completions", map[string]string{"X-Ratelimit-Remaining-Tokens": "900", "X-Ratelimit-Limit-Tokens": "1000", "X-Request-Id": "theirs"}},
		{"/v1/hints", map[string]string{"X-Ratelimit-Limit-Tokens": "1000", "X-Request-Id": "theirs"}},
		{"/v1/messages", map[string]string{"Anthropic-Ratelimit-Tokens-Limit": "1000", "X-Request-Id": "theirs"}},
		{"/plain", map[string]string{"X-Ratelimit-Remaining-Tokens": "999999", "X-Ratelimit-Limit-Requests": "999999", "X-Ratelimit-Reset-Images": "9s", "Anthropic-Ratelimit-Input-Tokens-Remaining": "999999"}},
	} {
		path, want := one.path, one.want
		response, err := http.Post(server.URL+path, "application/json", nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		for name, value := range want {
			if got := response.Header[name]; !slices.Equal(got, []string{value}) {
				t.Errorf("%s: %s is %q, want %s", path, name, got, value)
			}
		}
		for name, values := range response.Header {
			if path != "/plain" && (strings.Contains(strings.Join(values, ","), "999999") || name == "X-Ratelimit-Reset-Images") {
				t.Errorf("%s: the upstream's field %s: %s reaches the client", path, name, values)
			}
		}
	}
}

// A denied call of MCP gets a JSON-RPC error with the status 200. With AuthOnly, and for notifications, the status is
// 429.
func TestStatusOfMCP(t *testing.T) {
	t.Parallel()
	const document = "version: 1\nrules: [{name: tools, limit: 1/day, answer: mcp}]"
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, test := range []struct {
		config Config
		body   string
		want   int
	}{
		{Config{}, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 200},
		{Config{}, `{"jsonrpc":"2.0","method":"ping"}`, 429},
		{Config{AuthOnly: true}, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 429},
	} {
		handler := test.config.Policy(policytest.Engine(t, document))(next)
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest("POST", "/mcp", strings.NewReader(test.body)))
		}
		if w.Code != test.want || strings.Contains(test.body, `"id"`) != strings.Contains(w.Body.String(), `"code":-32029`) {
			t.Errorf("%+v: %d %s", test, w.Code, w.Body)
		}
	}
}
