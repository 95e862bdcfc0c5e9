package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// left returns what remains of a limiter without keys.
func left(t *testing.T, l *sluice.Limiter) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

// Without the setting handlers have the server's own ResponseWriter, and what they say is not
// heard. What is refused has no outcome.
func TestAwaitNothing(t *testing.T) {
	t.Parallel()
	limiter := policytest.Limiter(t, memory.New(), "1/day")
	key := func(*http.Request) string { return "" }
	h := Limit(limiter, key)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, own := w.(*httptest.ResponseRecorder); !own {
			t.Errorf("the ResponseWriter is a %T", w)
		}
		Settle(r.Context(), policy.Outcome{Cost: -1})
	}))
	serve := func(h http.Handler) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	if code := serve(h); code != 200 || left(t, limiter) != 0 {
		t.Errorf("%d, and %d are left", code, left(t, limiter))
	}
	waits := Config{AwaitOutcome: true}.Limit(limiter, key)(things)
	if code := serve(waits); code != 429 || left(t, limiter) != 0 {
		t.Errorf("%d, and %d are left", code, left(t, limiter))
	}
}
