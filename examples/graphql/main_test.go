package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func limiter(t *testing.T, text string) *sluice.Limiter {
	t.Helper()
	limit, err := sluice.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	l, err := sluice.NewLimiter(memory.New(), "test", limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestGraphQL(t *testing.T) {
	length := func(query string) int64 { return int64(len(query)) }
	h := graphQL(limiter(t, "100/hour burst 100"), length, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err != nil || !strings.HasPrefix(string(body), `{"query"`) {
			t.Errorf("the handler reads %q, %v", body, err)
		}
	}))
	for i, c := range []struct {
		body string
		want int
	}{
		{`{"query": "` + strings.Repeat("a", 60) + `"}`, 200},
		{`{"query": "` + strings.Repeat("a", 41) + `"}`, 429},
		{`{"query": "` + strings.Repeat("a", 40) + `"}`, 200},
		{`query`, 400},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/graphql", strings.NewReader(c.body)))
		if retry := w.Header().Get("Retry-After"); w.Code != c.want || (retry != "") != (c.want == 429) {
			t.Errorf("request %d: %d, Retry-After %q; want %d", i+1, w.Code, retry, c.want)
		}
	}
	w := httptest.NewRecorder()
	graphQL(limiter(t, "5/hour burst 5"), length, h).ServeHTTP(w, httptest.NewRequest("POST", "/graphql", strings.NewReader(`{"query": "longer"}`)))
	if w.Code != 429 || w.Header().Get("Retry-After") != "" {
		t.Errorf("a cost that never fits: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
}

func TestCost(t *testing.T) {
	for query, want := range map[string]int64{
		"":                              1,
		"{ me { name } }":               2,
		"query Q { me { name id } }":    3,
		"{ users(first: 20) { name } }": 21,
		"{ users(first: 20) { name posts(last: 5) { title } } }":         141,
		`{ users(named: "{ a b c }", first: 2) { name } } # { a { b } }`: 3,
		"{ a: users(first: 3) { n: name } b: me { name } }":              6,
		"{ users(first: 99999999999) { name } }":                         1 << 20,
		"}}}":                                                            1,
	} {
		if got := cost(query); got != want {
			t.Errorf("%s costs %d, want %d", query, got, want)
		}
	}
}
