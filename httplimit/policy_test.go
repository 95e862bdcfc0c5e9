package httplimit

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func mustEngine(tb testing.TB, store sluice.Store, document string) *policy.Engine {
	tb.Helper()
	p, err := policyfile.Parse("test.yaml", []byte(document))
	if err != nil {
		tb.Fatal(err)
	}
	return policy.NewEngine(store, p)
}

const layers = `
version: 1
trusted_proxies: [192.0.2.0/24]
rules:
  - name: health
    match: [GET /health]
    exempt: true
  - name: per-address
    key: [client_ip]
    limit: 100/hour
    algorithm: sliding_window_counter
  - name: trial
    limit: 1/day
    shadow: true
  - name: per-key
    match: [/things]
    key: [header:X-API-Key]
    missing: refuse
    limit: 2/hour
  - name: login
    match: [POST /login]
    key: [client_ip, body:username]
    limit: 1/minute
    algorithm: sliding_window_log
    on_error: deny
`

func TestPolicyGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Policy(mustEngine(t, memory.New(), layers))(things)
		requests := []string{
			"GET /health HTTP/1.1\nHost: x\nConnection: close\n\n",
			"GET /other HTTP/1.1\nHost: x\nConnection: close\n\n",
			get("X-API-Key: a"), get("X-API-Key: a"), get("X-API-Key: a"), get("X-API-Key: b"),
			get(), get("Accept: text/plain"),
		}
		golden(t, "policy", strings.Join(exchange(t, h, requests...), "\n----\n"))
	})
}

// The address comes from the header that trusted proxies write, by the policy in force.
func TestPolicyClient(t *testing.T) {
	const perAddress = "version: 1\nrules: [{name: a, key: [client_ip], limit: 1/hour}]\n"
	engine := mustEngine(t, memory.New(), perAddress)
	h := Policy(engine)(things)
	forwarded := Config{ForwardedHeader: "Forwarded"}.Policy(engine)(things)
	status := func(h http.Handler, name, value string) int {
		r := httptest.NewRequest("GET", "/", nil) // from 192.0.2.1
		r.Header.Set(name, value)
		return recorded(h, r).Code
	}
	if a, b := status(h, "X-Forwarded-For", "1.1.1.1"), status(h, "X-Forwarded-For", "1.1.1.2"); a != 200 || b != 429 {
		t.Errorf("nobody is trusted, but: %d, %d", a, b)
	}
	trusting, err := policyfile.Parse("trusting.yaml", []byte(perAddress+"trusted_proxies: [192.0.2.1]\n"))
	if err != nil {
		t.Fatal(err)
	}
	engine.Swap(trusting)
	for _, address := range []string{"1.1.1.1", "1.1.1.2", "9.9.9.9, 1.1.1.3"} {
		if a, b := status(h, "X-Forwarded-For", address), status(h, "X-Forwarded-For", address); a != 200 || b != 429 {
			t.Errorf("%s: %d, %d", address, a, b)
		}
	}
	if a, b := status(forwarded, "X-Forwarded-For", "1.1.1.4"), status(forwarded, "Forwarded", "for=1.1.1.5"); a != 429 || b != 200 {
		t.Errorf("with Forwarded: %d, %d", a, b)
	}
}

// Attributes are of one request, and those of the one before do not show.
func TestPolicyAttributes(t *testing.T) {
	engine := mustEngine(t, memory.New(), "version: 1\nrules: [{name: a, key: [attr:user], limit: 1/hour, missing: skip}]\n")
	type user struct{}
	h := Config{Attributes: func(r *http.Request, attributes map[string]string) {
		if len(attributes) > 0 {
			t.Errorf("there are attributes already: %v", attributes)
		}
		if name, ok := r.Context().Value(user{}).(string); ok {
			attributes["user"] = name
		}
	}}.Policy(engine)(things)
	for i, tt := range []struct {
		user string
		want int
	}{{"alice", 200}, {"alice", 429}, {"", 200}, {"bob", 200}, {"", 200}, {"bob", 429}} {
		r := httptest.NewRequest("GET", "/", nil)
		if tt.user != "" {
			r = r.WithContext(context.WithValue(r.Context(), user{}, tt.user))
		}
		if got := recorded(h, r).Code; got != tt.want {
			t.Errorf("request %d, of %q: %d, want %d", i, tt.user, got, tt.want)
		}
	}
}

// A rule that looks into the body leaves it to the handler.
func TestPolicyBody(t *testing.T) {
	s := httptest.NewServer(Policy(mustEngine(t, memory.New(), layers))(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })))
	defer s.Close()
	for i, want := range []int{200, 429} {
		for _, name := range []string{"alice", "bob"} {
			body := `{"username":"` + name + `","password":"` + strings.Repeat("x", 1000*i) + `"}`
			response, err := http.Post(s.URL+"/login", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode != want || want == 200 && string(got) != body {
				t.Errorf("%s: %d %s", name, response.StatusCode, got)
			}
		}
	}
}

// Rules decide what is said when the store is away.
func TestPolicyStoreAway(t *testing.T) {
	store := &failingStore{Store: memory.New()}
	store.away.Store(true)
	h := Config{DegradedField: true, Logger: slog.New(slog.DiscardHandler)}.Policy(mustEngine(t, store, layers))(things)
	w := recorded(h, httptest.NewRequest("GET", "/other", nil))
	if w.Code != 200 || w.Header().Get("X-RateLimit-Degraded") != "true" || w.Header()["Ratelimit"] != nil {
		t.Errorf("open: %d %v", w.Code, w.Header())
	}
	w = recorded(h, httptest.NewRequest("POST", "/login", nil))
	var body struct {
		Type, Error string
		Status      int
		RetryAfter  int `json:"retry_after"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if w.Code != 503 || body.Status != 503 || body.RetryAfter < 1 || w.Header().Get("Retry-After") == "" ||
		!strings.HasSuffix(body.Type, "#temporary-reduced-capacity") || body.Error != "temporary_reduced_capacity" {
		t.Errorf("closed: %d %v %+v", w.Code, w.Header(), body)
	}
}

// A cost that can never fit has no Retry-After, and the body says why.
func TestPolicyNever(t *testing.T) {
	h := Policy(mustEngine(t, memory.New(), `
version: 1
rules:
  - {name: heavy, limit: 10/minute, cost: {header: X-Cost, max: 100, default: 1}}
`))(things)
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("X-Cost", "11")
	w := recorded(h, r)
	if w.Code != 429 || w.Header()["Retry-After"] != nil || strings.Contains(w.Body.String(), "retry_after") ||
		!strings.Contains(w.Body.String(), "The request asks for 11, more than it ever allows at once.") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// The place of a client that leaves the queue of a rule goes to the next one.
func TestPolicyQueueClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Policy(mustEngine(t, memory.New(),
			"version: 1\nrules: [{name: queue, limit: 1/second burst 2, algorithm: leaky_bucket}]\n"))(things)
		fresh := func() *http.Request { return httptest.NewRequest("GET", "/", nil) }
		recorded(h, fresh())
		leaving := fresh()
		ctx, cancel := context.WithCancel(t.Context())
		go recorded(h, leaving.WithContext(ctx))
		synctest.Wait()
		if w := recorded(h, fresh()); w.Code != 429 {
			t.Fatalf("the queue is not full: %d", w.Code)
		}
		cancel()
		synctest.Wait()
		if w := recorded(h, fresh()); w.Code != 200 {
			t.Errorf("the place is lost: %d", w.Code)
		}
	})
}

// Who is blocked, in the engine or by an override, is told that it is so, and neither of limits nor
// of anybody else.
func TestPolicyBlock(t *testing.T) {
	engine := mustEngine(t, memory.New(), `version: 1
rules: [{name: a, key: [client_ip, api_key], limit: 10/hour}, {name: b, limit: 100/hour}]
overrides: [{rule: a, key: {client_ip: 192.0.2.0/24, api_key: evil}, block: true, until: 2127-01-31, reason: what eve did, by: support}]
`)
	s, err := engine.Subject("a", map[string]string{"client_ip": "192.0.2.1", "api_key": "k"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Block(time.Now().AddDate(1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"k": 403, "evil": 403, "good": 200} {
		r := httptest.NewRequest("GET", "/", nil) // from 192.0.2.1
		r.Header.Set("X-Api-Key", key)
		w := recorded(Policy(engine)(things), r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", key, w.Code, want)
		}
		const body = `{"type":"about:blank","title":"Forbidden","status":403,"detail":"Rule a blocks the request.","error":"blocked"}` + "\n"
		if want == 403 && (w.Header().Get("RateLimit") != "" || w.Header().Get("Retry-After") != "" || w.Body.String() != body) {
			t.Errorf("%s: %v, %s", key, w.Header(), w.Body)
		}
	}
}
