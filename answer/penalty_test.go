package answer_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// TestPenaltyTold holds what clients are told of a penalty, by the limit that they have exceeded:
// while it lasts nothing remains, and the wait is its end.
func TestPenaltyTold(t *testing.T) {
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Name: "login", Key: []string{"client_ip"}, Limit: "2/second", Penalty: policy.Penalty{First: "10m"}},
		{Name: "all", Limit: "100/second"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	engine := policy.NewEngine(memory.New(), p)
	var encoder answer.Encoder
	for i := range 5 {
		var a answer.Answer
		h := http.Header{}
		d := engine.Decide(t.Context(), &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.1")})
		encoder.Encode(&a, h, &d, answer.Client{})
		if i < 2 {
			if a.Status != http.StatusOK {
				t.Fatalf("request %d: %d", i+1, a.Status)
			}
			continue
		}
		body := string(a.Body())
		if a.Status != http.StatusTooManyRequests || h.Get("Retry-After") != "600" || h.Get("X-Ratelimit-Remaining") != "0" ||
			!strings.HasPrefix(h.Get("Ratelimit"), `"login";r=0;t=600, "all";r=`) {
			t.Errorf("request %d: %d %v", i+1, a.Status, h)
		}
		for _, want := range []string{
			`"detail":"Limit login: 2 per 1s. Whoever exceeds it is locked out for a while. Retry in 600 s."`,
			`"violated-policies":["login"]`, `"retry_after":600`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("request %d: %s, want %s", i+1, body, want)
			}
		}
	}
}
