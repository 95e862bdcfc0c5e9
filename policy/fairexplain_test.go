package policy

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// Whoever looks at a share after the wall's clock was set leaves it as it was: who was active still is.
func TestExplainLeavesShares(t *testing.T) {
	p, err := Compile(Document{Rules: []Rule{{Name: "api", Share: Share{Of: "200/second", By: []string{"header:X-Tenant"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(memory.New(), p)
	e.shares.wall -= time.Hour.Microseconds() // as if the wall's clock was set an hour ahead since
	ask := func(tenant string) *Request {
		return &Request{Method: "GET", Path: "/", Header: http.Header{"X-Tenant": {tenant}}}
	}
	for _, tenant := range []string{"a", "b", "c"} {
		if !e.Decide(t.Context(), ask(tenant)).Allowed {
			t.Fatalf("%s is refused", tenant)
		}
	}
	active := func() (weights int64) {
		for _, c := range *e.shares.known.Load() {
			weights = c.Part("", 0, e.shares.time(time.Time{})).Weights
		}
		return weights
	}
	if n := active(); n != 3 {
		t.Fatalf("%d tenants are active", n)
	}
	e.Explain(t.Context(), ask("a"))
	if n := active(); n != 3 {
		t.Errorf("after a look %d tenants are active", n)
	}
}
