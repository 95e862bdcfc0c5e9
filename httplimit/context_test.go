package httplimit

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Decisions that handlers keep stay as they were, whatever is decided afterwards.
func TestDecisionFrom(t *testing.T) {
	const requests = 400
	var mu sync.Mutex
	var kept []policy.Decision
	h := Config{KeepDecision: true}.Policy(mustEngine(t, memory.New(), `
version: 1
rules:
  - {name: all, limit: 400/hour}
  - {name: more, match: /more, limit: 900/hour}
`))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, found := DecisionFrom(r.Context())
		if !found {
			t.Error("no decision")
		}
		mu.Lock()
		defer mu.Unlock()
		kept = append(kept, d)
	}))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range requests / 4 {
				recorded(h, httptest.NewRequest("GET", []string{"/", "/more"}[i%2], nil))
			}
		})
	}
	wg.Wait()
	var remaining []int64
	more := 0
	for _, d := range kept {
		if !d.Allowed || d.Results[0].Rule != "all" {
			t.Fatalf("kept %+v", d)
		}
		remaining = append(remaining, d.Results[0].Remaining)
		if len(d.Results) == 2 && d.Results[1].Rule == "more" {
			more++
		}
	}
	slices.Sort(remaining)
	if len(slices.Compact(remaining)) != requests || more != requests/2 {
		t.Errorf("%d different remainders of %d, and %d results of the second rule", len(slices.Compact(remaining)), requests, more)
	}
}

func TestNoDecision(t *testing.T) {
	h := Policy(mustEngine(t, memory.New(), once))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, found := DecisionFrom(r.Context()); found || d.Allowed {
			t.Errorf("a decision that nobody has asked for: %+v", d)
		}
	}))
	if w := recorded(h, httptest.NewRequest("GET", "/", nil)); w.Code != 200 {
		t.Error(w.Code)
	}
}
