package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const once = `
version: 1
rules:
  - {name: once, key: [client_ip], limit: 1/hour}
  - {name: signed, match: /signed, key: [header:X-API-Key], missing: refuse, limit: 9/hour}
`

// A Refusal need not know the status, and may set another one.
func TestRefuse(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		refuse Refusal
		status int
		media  string
		body   string
	}{
		{"a body", func(w http.ResponseWriter, _ *http.Request, d policy.Decision) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, "<p>%s: wait %s s", d.Results[0].Rule, w.Header().Get("Retry-After"))
		}, 429, "text/html; charset=utf-8", "<p>once: wait 3600 s"},
		{"nothing", func(http.ResponseWriter, *http.Request, policy.Decision) {}, 429, "", ""},
		{"a status", func(w http.ResponseWriter, _ *http.Request, _ policy.Decision) {
			w.WriteHeader(http.StatusForbidden)
		}, 403, "", ""},
		{"early hints", func(w http.ResponseWriter, _ *http.Request, _ policy.Decision) {
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "no")
		}, 429, "text/plain", "no"},
		{"a flush", func(w http.ResponseWriter, _ *http.Request, _ policy.Decision) {
			w.Header().Set("Content-Type", "text/plain")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(w, "slowly")
		}, 429, "text/plain", "slowly"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(Config{Refuse: c.refuse}.Policy(policytest.Engine(t, once))(things))
			defer server.Close()
			if first := fetch(t, server, "/"); first.StatusCode != 200 {
				t.Fatalf("the first request got %d", first.StatusCode)
			}
			resp := fetch(t, server, "/")
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.media || string(body) != c.body {
				t.Errorf("got %d, %q, %q; want %d, %q, %q", resp.StatusCode, resp.Header.Get("Content-Type"), body, c.status, c.media, c.body)
			}
			for name, want := range map[string]string{"Retry-After": "3600", "Ratelimit": `"once";r=0;t=3600`, "Cache-Control": "no-store"} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

// fetch gets a path, without compression and redirects. The body is closed with the test.
func fetch(t *testing.T, server *httptest.Server, path string) *http.Response {
	t.Helper()
	resp, err := server.Client().Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// What is refused for another reason than a limit has its own status, and what is malformed
// is for the door to answer.
func TestRefuseOtherwise(t *testing.T) {
	t.Parallel()
	var said []policy.Decision
	config := Config{Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) {
		said = append(said, d.Clone())
	}}
	h := config.Policy(policytest.Engine(t, once))(things)
	if w := recorded(h, httptest.NewRequest("GET", "/signed", nil)); w.Code != 400 || w.Body.Len() > 0 {
		t.Errorf("without a key: %d %s", w.Code, w.Body)
	}
	if len(said) != 1 || said[0].Missing != "header:X-API-Key" {
		t.Errorf("without a key: refused %+v", said)
	}
	malformed := httptest.NewRequest("GET", "/", nil)
	malformed.Host = "a..b"
	if w := recorded(h, malformed); w.Code != 400 || !strings.Contains(w.Body.String(), "malformed_request") || len(said) != 1 {
		t.Errorf("malformed: %d %s, refused %d times", w.Code, w.Body, len(said))
	}
	away := faultstore.New(memory.New())
	away.Set(faultstore.Refused)
	closed := mustLimiter(t, away, "1/hour", sluice.TokenBucket)
	closed.OnError = sluice.Deny
	if w := recorded(config.Limit(closed, nil)(things), httptest.NewRequest("GET", "/", nil)); w.Code != 503 {
		t.Errorf("without a store: %d", w.Code)
	}
	if last := said[len(said)-1]; !last.Unavailable || last.Err == nil {
		t.Errorf("without a store: refused %+v", last)
	}
}

// A program that decides by itself answers as the middleware does.
func TestAnswerer(t *testing.T) {
	t.Parallel()
	limiter := mustLimiter(t, memory.New(), "10/hour", sluice.TokenBucket)
	a := Config{Name: "units"}.Answerer()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		took, err := limiter.Take(r.Context(), "everybody", 6)
		if a.Answer(w, r, answer.Decided(limiter, "units", 6, took, err)) {
			things.ServeHTTP(w, r)
		}
	})
	for _, want := range []string{"200 4 ", "429 4 720"} { // 2 of 10 an hour are missing
		w := recorded(h, httptest.NewRequest("GET", "/", nil))
		got := fmt.Sprint(w.Code, " ", w.Header().Get("X-RateLimit-Remaining"), " ", w.Header().Get("Retry-After"))
		if violated := strings.Contains(w.Body.String(), `"violated-policies":["units"]`); got != want || violated != (w.Code == 429) {
			t.Errorf("%s, want %s: %s", got, want, w.Body)
		}
	}
	head := httptest.NewRecorder()
	if a.Answer(head, httptest.NewRequest("HEAD", "/", nil), policy.Decision{Missing: "a name"}) || head.Code != 400 || head.Body.Len() > 0 {
		t.Errorf("HEAD: %d %s", head.Code, head.Body)
	}
	mine := httptest.NewRecorder()
	Config{Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) {
		fmt.Fprint(w, d.Err)
	}}.Answerer().Answer(mine, httptest.NewRequest("GET", "/", nil), policy.Decision{Unavailable: true, Err: errors.New("the database is away")})
	if mine.Code != 503 || mine.Body.String() != "the database is away" {
		t.Errorf("an answer of one's own: %d %s", mine.Code, mine.Body)
	}
}
