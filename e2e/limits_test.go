package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dunglas/httpsfv"

	"github.com/sluicehq/sluice/internal/redistest"
)

const severalLimits = `
version: 1
rules:
  - name: api
    key: [header:X-User]
    algorithm: sliding_window_log
    limits: [3/hour, 5/day, 7/30d]
`

// told returns what the fields of an answer say of each limit, as "q per w, r left".
func told(t *testing.T, h http.Header) map[string]string {
	t.Helper()
	policies, err := httpsfv.UnmarshalList(h["Ratelimit-Policy"])
	if err != nil {
		t.Fatal(err)
	}
	states, err := httpsfv.UnmarshalList(h["Ratelimit"])
	if err != nil || len(states) != len(policies) {
		t.Fatalf("%q: %v", h, err)
	}
	all := make(map[string]string)
	for i := range policies {
		p, s := policies[i].(httpsfv.Item), states[i].(httpsfv.Item)
		if p.Value != s.Value {
			t.Errorf("%v is followed by %v", p.Value, s.Value)
		}
		q, _ := p.Params.Get("q")
		w, _ := p.Params.Get("w")
		r, _ := s.Params.Get("r")
		all[fmt.Sprint(p.Value)] = fmt.Sprintf("%v per %v, %v left", q, w, r)
	}
	return all
}

// Several limits of a rule are told one by one under names of their own, charged together
// and shared by two gateways.
func TestSeveralLimits(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	server := redistest.Start(t)
	policy := write(t, "policy.yaml", severalLimits)
	args := []string{"--upstream", upstream.URL, "--policy", policy, "--store", server.URL()}
	gateways := []*gateway{serve(t, args...), serve(t, args...)}
	want := func(left ...int) map[string]string {
		return map[string]string{
			"api-1h":  fmt.Sprintf("3 per 3600, %d left", left[0]),
			"api-1d":  fmt.Sprintf("5 per 86400, %d left", left[1]),
			"api-30d": fmt.Sprintf("7 per 2592000, %d left", left[2]),
		}
	}
	for i, left := range [][]int{{2, 4, 6}, {1, 3, 5}, {0, 2, 4}, {0, 2, 4}, {0, 2, 4}} {
		resp, body := do(t, request(t, "GET", gateways[i%2].url, "", "X-User", "alice"))
		if refused := resp.StatusCode == http.StatusTooManyRequests; refused != (i > 2) {
			t.Errorf("request %d: %s", i+1, resp.Status)
		} else if refused && !strings.Contains(body, `"violated-policies":["api-1h"]`) {
			t.Errorf("request %d: %s", i+1, body)
		}
		if got := told(t, resp.Header); !maps.Equal(got, want(left...)) {
			t.Errorf("request %d: %v, want %v", i+1, got, want(left...))
		}
	}
	resp, _ := do(t, request(t, "GET", gateways[0].url, "", "X-User", "bob"))
	if got := told(t, resp.Header); !maps.Equal(got, want(2, 4, 6)) {
		t.Errorf("another user: %v", got)
	}
}
