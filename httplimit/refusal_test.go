package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/answer"
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

// A program that decides by itself answers as the middleware does.
func TestAnswerer(t *testing.T) {
	t.Parallel()
	limiter := policytest.Limiter(t, memory.New(), "10/hour")
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
