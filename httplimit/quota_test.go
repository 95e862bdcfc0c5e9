package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// The door answers at the path itself, for nothing, and whatever else is asked passes as before.
func TestQuotaPath(t *testing.T) {
	engine := mustEngine(t, memory.New(), `version: 1
rules:
  - {name: a, key: [api_key], limit: 2/day}
  - {name: orders, match: POST /orders, key: [attr:user], limit: 5/day}
overrides: [{rule: a, key: {api_key: evil}, block: true}]
`)
	reached := 0
	config := Config{QuotaPath: "/v1/quota", Attributes: func(r *http.Request, a map[string]string) { a["user"] = "u" }}
	h := config.Policy(engine)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	for _, tt := range []struct {
		method, target, key string
		status              int
		body                string
	}{
		{"GET", "/v1/quota", "k", 200, `{"limits":[{"name":"a","quota":2,"window":86400,"remaining":2,"reset":`},
		{"GET", "/v1/quota?path=/orders&method=POST&x=y", "k", 200, `{"name":"orders","quota":5,`},
		{"GET", "/v1/quota?path=%2Forders&method=post", "k", 200, `{"name":"orders","quota":5,`},
		{"HEAD", "/v1/quota", "k", 200, ""},
		{"GET", "/v1/quota", "evil", 403, `"error":"blocked"`},
		{"GET", "/v1/quota?path=orders", "k", 400, "must begin with a slash"},
		{"GET", "/v1/quota?path=/orders%3Fa=b", "k", 400, "have no query"},
		{"GET", "/v1/quota?path=/a&path=/b", "k", 400, "each once at most"},
		{"GET", "/v1/quota?path=%zz", "k", 400, "each once at most"},
		{"GET", "/v1/quota?path=/%2500", "k", 200, `{"limits":[{"name":"a"`},
	} {
		for range 3 {
			r := httptest.NewRequest(tt.method, tt.target, nil)
			r.Header.Set("X-Api-Key", tt.key)
			w := recorded(h, r)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || tt.method == "HEAD" && w.Body.Len() > 0 {
				t.Errorf("%s %s of %s: %d, %s", tt.method, tt.target, tt.key, w.Code, w.Body)
			}
			if known := w.Header().Get("Ratelimit") != ""; known != (tt.status == 200) {
				t.Errorf("%s %s of %s: fields %v", tt.method, tt.target, tt.key, w.Header())
			}
		}
	}
	if reached > 0 {
		t.Errorf("the handler was asked %d times", reached)
	}
	for _, target := range []string{"/v1/quota/", "/v1//quota", "/v1/%71uota"} {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("X-Api-Key", target)
		if w := recorded(h, r); w.Code != 200 || !strings.Contains(w.Header().Get("Ratelimit"), `"a";r=1;`) {
			t.Errorf("%s is not counted: %d, %v", target, w.Code, w.Header())
		}
	}
	if w := recorded(h, httptest.NewRequest("POST", "/v1/quota", nil)); w.Code != 200 || reached != 4 {
		t.Errorf("a POST: %d, %d were passed on", w.Code, reached)
	}
}

// Refusals of a program's own hold for who is blocked here, too.
func TestQuotaRefusedByProgram(t *testing.T) {
	engine := mustEngine(t, memory.New(), "version: 1\nrules: [{name: a, block: true}]\n")
	config := Config{QuotaPath: "/q", Refuse: func(w http.ResponseWriter, _ *http.Request, d policy.Decision) {
		_, _ = w.Write([]byte("own " + d.Blocked))
	}}
	if w := recorded(config.Policy(engine)(things), httptest.NewRequest("GET", "/q", nil)); w.Code != 403 || w.Body.String() != "own a" {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
	// What is malformed is answered by the door, as it always is.
	if w := recorded(config.Policy(engine)(things), httptest.NewRequest("GET", "/q?path=x", nil)); w.Code != 400 || !strings.Contains(w.Body.String(), "slash") {
		t.Errorf("%d, %s", w.Code, w.Body)
	}
}
