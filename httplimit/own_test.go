package httplimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/policy"
)

const ownAnswers = once + `
answers:
  429: {status: 503, headers: {X-Support: here}, type: text/html, body: "<p>{{.Rule}}, in {{.Wait}}{{range 3000}}.{{end}}"}
  400: {type: text/html, body: "<p>{{.Detail}}"}
`

// What the program says comes before what the policy says, but for requests that are malformed.
func TestRefuseBeforeOwnAnswers(t *testing.T) {
	t.Parallel()
	h := Config{Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) { fmt.Fprint(w, "mine") }}.Policy(policytest.Engine(t, ownAnswers))(things)
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
	t.Parallel()
	engine := policytest.Engine(t, once)
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
	engine.Swap(policytest.Engine(t, ownAnswers).Policy())
	if code, body := ask(); code != 503 || !strings.HasPrefix(body, "<p>once") {
		t.Errorf("%d %.40s", code, body)
	}
}
