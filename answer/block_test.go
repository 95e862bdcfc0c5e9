package answer

import (
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Who is blocked is told so, and nothing of limits, nor when to come back.
func TestBlocked(t *testing.T) {
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Name: "abusers", Clients: []string{"192.0.2.0/24"}, Block: true},
		{Name: "also", Match: []string{"/a"}, Block: true},
		{Name: "watched", Block: true, Shadow: true},
		{Name: "all", Limit: "5/day"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := policy.NewEngine(memory.New(), p)
	var enc Encoder
	var a Answer
	answered := func(client string, h http.Header) http.Header {
		d := e.Decide(t.Context(), &policy.Request{Path: "/a/b", Peer: netip.MustParseAddr(client)})
		out := http.Header{}
		enc.Encode(&a, out, &d, Client{Header: h})
		return out
	}
	for accept, want := range map[string]struct{ media, body string }{
		"":                 {"application/problem+json", `{"type":"about:blank","title":"Forbidden","status":403,"detail":"Rule abusers blocks the request.","error":"blocked"}` + "\n"},
		"application/json": {"application/json", `{"error":"blocked","message":"Rule abusers blocks the request."}` + "\n"},
		"text/plain":       {"text/plain", "Rule abusers blocks the request.\n"},
	} {
		h := http.Header{}
		if accept != "" {
			h.Set("Accept", accept)
		}
		got := answered("192.0.2.1", h)
		if fields := (http.Header{"Content-Type": {want.media}, "Cache-Control": {"no-store"}}); a.Status != 403 || !reflect.DeepEqual(got, fields) || string(a.Body()) != want.body {
			t.Errorf("%q: %d %v\n%s", accept, a.Status, got, a.Body())
		}
	}
	// A shadow is not mentioned.
	if got := answered("198.51.100.1", nil); a.Status != 200 || got.Get("RateLimit-Policy") != `"all";q=5;w=86400` || got.Get("X-RateLimit-Remaining") != "4" {
		t.Errorf("%d %v", a.Status, got)
	}
}

// A request that never passes is given no time after which it would, also while the store is away.
func TestNeverHasNoRetryAfter(t *testing.T) {
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "all", Limit: "5/day"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"", "application/json", "text/plain"} {
		status, h, body := answered(p, &policy.Decision{Unavailable: true, RetryAfter: sluice.Never}, http.Header{"Accept": {accept}})
		if status != 503 || h["Retry-After"] != nil || strings.Contains(strings.ToLower(body), "retry") {
			t.Errorf("%q: %d %v\n%s", accept, status, h, body)
		}
	}
}
