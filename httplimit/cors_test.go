package httplimit

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// corsFields returns what an answer says of other origins, several values joined.
func corsFields(h http.Header) map[string]string {
	said := make(map[string]string)
	for name, values := range h {
		if strings.HasPrefix(name, "Access-Control-") || name == "Vary" {
			said[name] = strings.Join(values, "|")
		}
	}
	return said
}

// A refusal tells the pages that may read it, and an answer of the handler is the handler's:
// the door adds only what may be read of its own fields.
func TestCORS(t *testing.T) {
	const (
		allow, credentials, expose = "Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Access-Control-Expose-Headers"
		app                        = "https://app.example.com"
		told                       = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"
	)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(allow, "https://said.by.upstream")
		w.Header().Set(expose, "X-Own")
		w.Header().Set("Vary", "Accept")
	}))
	defer upstream.Close()
	target, err := url.Parse(upstream.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := map[string]string{allow: "https://said.by.upstream", expose: "X-Own", "Vary": "Accept"}
	exposing := maps.Clone(behind)
	exposing[expose] = told + "|X-Own"
	for name, test := range map[string]struct {
		cors, origin    string
		passed, refused map[string]string
	}{
		"none":             {"", app, behind, map[string]string{}},
		"allowed":          {"cors: {origins: [" + app + "]}", app, exposing, map[string]string{allow: app, expose: told, "Vary": "Origin"}},
		"with credentials": {"cors: {origins: [" + app + "], credentials: true}", app, exposing, map[string]string{allow: app, credentials: "true", expose: told, "Vary": "Origin"}},
		"not allowed":      {"cors: {origins: [" + app + "]}", "https://evil.test", behind, map[string]string{"Vary": "Origin"}},
		"no origin":        {"cors: {origins: [" + app + "]}", "", behind, map[string]string{"Vary": "Origin"}},
		"every":            {"cors: {origins: '*'}", app, exposing, map[string]string{allow: "*", expose: told}},
	} {
		h := Policy(mustEngine(t, memory.New(), "version: 1\n"+test.cors+"\nrules: [{name: a, limit: 1/day}]\n"))(
			Keep(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}))
		for i, want := range []map[string]string{test.passed, test.refused} {
			r := httptest.NewRequest("GET", "/", nil)
			if test.origin != "" {
				r.Header.Set("Origin", test.origin)
			}
			w := recorded(h, r)
			if status := []int{200, 429}[i]; w.Code != status || !maps.Equal(corsFields(w.Header()), want) {
				t.Errorf("%s: %d %v, want %v", name, w.Code, corsFields(w.Header()), want)
			}
		}
	}
}
