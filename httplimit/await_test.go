package httplimit

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicehq/sluice"
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

// A single limit is settled by what the handler says, and charged before.
func TestAwaitOutcome(t *testing.T) {
	say := func(o policy.Outcome) func(http.ResponseWriter, *http.Request) {
		return func(_ http.ResponseWriter, r *http.Request) { Settle(r.Context(), o) }
	}
	for _, test := range []struct {
		name    string
		handler func(w http.ResponseWriter, r *http.Request)
		want    int64 // used, of 3 before
	}{
		{"nothing", func(http.ResponseWriter, *http.Request) {}, 3},
		{"a status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, 3},
		{"said status", say(policy.Outcome{Status: 500}), 3},
		{"counts", say(policy.Outcome{Verdict: policy.Counts}), 3},
		{"does not count", say(policy.Outcome{Verdict: policy.CountsNot}), 0},
		{"does not count, and a cost", say(policy.Outcome{Verdict: policy.CountsNot, Cost: 9}), 0},
		{"more", say(policy.Outcome{Cost: 42}), 42},
		{"less", say(policy.Outcome{Cost: 1}), 1},
		{"none", say(policy.Outcome{Cost: -1}), 0},
		{"more than there is", say(policy.Outcome{Cost: 1000}), 100},
		{"said twice", func(w http.ResponseWriter, r *http.Request) {
			Settle(r.Context(), policy.Outcome{Cost: 5})
			w.WriteHeader(200)
			Settle(r.Context(), policy.Outcome{Cost: 50})
		}, 5},
		{"changed before the response", func(w http.ResponseWriter, r *http.Request) {
			Settle(r.Context(), policy.Outcome{Cost: 5})
			Settle(r.Context(), policy.Outcome{Verdict: policy.CountsNot})
			w.WriteHeader(200)
		}, 0},
		{"behind the response", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "text")
			Settle(r.Context(), policy.Outcome{Cost: 50})
		}, 50},
		{"panic", func(_ http.ResponseWriter, r *http.Request) {
			Settle(r.Context(), policy.Outcome{Cost: 50})
			panic(http.ErrAbortHandler)
		}, 50},
	} {
		limiter := mustLimiter(t, memory.New(), "100/day", sluice.FixedWindow)
		h := Config{AwaitOutcome: true}.LimitBy(func(*http.Request) (Choice, error) { return Choice{Limiter: limiter, Cost: 3}, nil })(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if n := left(t, limiter); n != 97 {
					t.Errorf("%s: %d are left while the handler runs", test.name, n)
				}
				test.handler(w, r)
			}))
		func() {
			defer func() { _ = recover() }()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		}()
		if got := 100 - left(t, limiter); got != test.want {
			t.Errorf("%s: %d units are used, want %d", test.name, got, test.want)
		}
	}
}

// Without the setting handlers have the server's own ResponseWriter, and what they say is not
// heard. What is refused has no outcome.
func TestAwaitNothing(t *testing.T) {
	limiter := mustLimiter(t, memory.New(), "1/day", sluice.TokenBucket)
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
