package httplimit

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const ownAnswers = once + `
answers:
  429: {status: 503, headers: {X-Support: here}, type: text/html, body: "<p>{{.Rule}}, in {{.Wait}}{{range 3000}}.{{end}}"}
  400: {type: text/html, body: "<p>{{.Detail}}"}
`

// answerTo returns the answer to a request of a real client, and its body.
func answerTo(t *testing.T, server *httptest.Server, method, path string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// What the policy says is sent whole, with a length, over HTTP/1.1 and HTTP/2.
func TestOwnAnswers(t *testing.T) {
	for _, two := range []bool{false, true} {
		server := httptest.NewUnstartedServer(Policy(mustEngine(t, memory.New(), ownAnswers))(things))
		server.EnableHTTP2 = two
		server.StartTLS()
		defer server.Close()
		if first, body := answerTo(t, server, "GET", "/"); first.StatusCode != 200 || body != "things\n" || (first.ProtoMajor == 2) != two {
			t.Fatalf("the first request: %s %d %s", first.Proto, first.StatusCode, body)
		}
		want := "<p>once, in 1h0m0s" + strings.Repeat(".", 3000)
		for _, method := range []string{"GET", "POST", "HEAD"} {
			resp, body := answerTo(t, server, method, "/", "Accept", "text/html")
			if method == "HEAD" && body != "" || method != "HEAD" && body != want {
				t.Errorf("%s: %.40q", method, body)
			}
			if resp.StatusCode != 503 || resp.ContentLength != int64(len(want)) || len(resp.TransferEncoding) > 0 {
				t.Errorf("%s: %d, length %d, %v", method, resp.StatusCode, resp.ContentLength, resp.TransferEncoding)
			}
			for name, want := range map[string]string{"Content-Type": "text/html; charset=utf-8", "X-Support": "here", "Vary": "Accept", "Retry-After": "3600", "Ratelimit": `"once";r=0;t=3600`, "Cache-Control": "no-store"} {
				if got := strings.Join(resp.Header[name], ", "); got != want {
					t.Errorf("%s, %s: %q, want %q", method, name, got, want)
				}
			}
		}
		if resp, body := answerTo(t, server, "GET", "/", "Accept", "text/plain"); resp.StatusCode != 503 || body != "Limit once: 1 per 3600s. Retry in 3600 s.\n" || resp.Header.Get("X-Support") != "here" {
			t.Errorf("as text: %d %s", resp.StatusCode, body)
		}
	}
}

// What the program says comes before what the policy says, but for requests that are malformed.
func TestRefuseBeforeOwnAnswers(t *testing.T) {
	h := Config{Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) { fmt.Fprint(w, "mine") }}.Policy(mustEngine(t, memory.New(), ownAnswers))(things)
	page := func(host string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = host
		r.Header.Set("Accept", "text/html")
		return recorded(h, r)
	}
	page("a")
	if w := page("a"); w.Code != 429 || w.Body.String() != "mine" || w.Header().Get("X-Support") != "" || w.Header().Get("Content-Length") != "" || w.Header().Get("Vary") != "" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := page("a..b"); w.Code != 400 || w.Body.String() != "<p>The Host must be a name or an address, and perhaps a port." {
		t.Errorf("malformed: %d %v %s", w.Code, w.Header(), w.Body)
	}
}

// A policy that is swapped brings its own answers.
func TestOwnAnswersOfTheNextPolicy(t *testing.T) {
	engine := mustEngine(t, memory.New(), once)
	h := Policy(engine)(things)
	ask := func() (int, string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Accept", "text/html")
		w := recorded(h, r)
		return w.Code, w.Body.String()
	}
	ask()
	if code, body := ask(); code != 429 || !strings.Contains(body, "violated-policies") {
		t.Errorf("%d %s", code, body)
	}
	engine.Swap(mustEngine(t, memory.New(), ownAnswers).Policy())
	if code, body := ask(); code != 503 || !strings.HasPrefix(body, "<p>once") {
		t.Errorf("%d %.40s", code, body)
	}
}
