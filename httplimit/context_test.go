package httplimit

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/policy"
)

// Decisions that handlers keep stay as they were, whatever is decided afterwards, and only where Config says so
// there are any.
func TestDecisionFrom(t *testing.T) {
	t.Parallel()
	const requests = 400
	var mu sync.Mutex
	kept := make(map[int64]policy.Decision)
	rules := "version: 1\nrules: [{name: all, limit: 400/hour}, {name: more, match: /more, limit: 900/hour}]"
	h := Config{KeepDecision: true}.Policy(policytest.Engine(t, rules))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, found := DecisionFrom(r.Context())
		mu.Lock()
		defer mu.Unlock()
		kept[d.Results[0].Remaining] = d
		if !found || len(d.Results) != 1+len(r.URL.Path)/5 {
			t.Errorf("%s: %v, %+v", r.URL, found, d)
		}
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
	for remaining, d := range kept {
		if !d.Allowed || d.Results[0].Rule != "all" || d.Results[0].Remaining != remaining {
			t.Errorf("kept with %d left: %+v", remaining, d)
		}
	}
	if len(kept) != requests {
		t.Errorf("%d different decisions of %d", len(kept), requests)
	}
	plain := Policy(policytest.Engine(t, once))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if d, found := DecisionFrom(r.Context()); found || d.Allowed {
			t.Errorf("a decision that Config does not keep: %+v", d)
		}
	}))
	if w := recorded(plain, httptest.NewRequest("GET", "/", nil)); w.Code != 200 {
		t.Error(w.Code)
	}
}
