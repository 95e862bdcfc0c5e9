package policy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// benchDocument returns a document of three rules that match benchRequest, and others
// that do not.
func benchDocument(others int) string {
	var b strings.Builder
	b.WriteString(`
tiers: {from: header:X-Plan, default: free}
rules:
  - {name: per-address, key: [client_ip], limit: 100000000/second, algorithm: sliding_window_counter}
  - {name: per-key, key: [api_key], limit: 100000000/second burst 100000000, tiers: {pro: 200000000/second}}
  - {name: users, match: "GET /api/users/{id}", key: [api_key, route], limit: 100000000/second}
`)
	for i := range others {
		fmt.Fprintf(&b, "  - {name: other-%d, match: [\"POST /other/%d/{x}\", /more/%d/], key: [client_ip], limit: 5/minute}\n", i, i, i)
	}
	return b.String()
}

func benchRequest() *Request {
	return &Request{
		Method: "GET", Host: "api.example.com", Path: "/api/users/42", Peer: netip.MustParseAddr("203.0.113.9"),
		Header: http.Header{"X-Api-Key": {"k-0123456789abcdef"}, "X-Plan": {"pro"}, "Accept": {"*/*"}},
	}
}

// BenchmarkDecide decides by three rules that match, among more and more rules that do not match.
func BenchmarkDecide(b *testing.B) {
	for _, others := range []int{0, 7, 97, 997, 9997} {
		b.Run(fmt.Sprintf("rules=%d", others+3), func(b *testing.B) {
			p := parse(b, benchDocument(others))
			e, req := NewEngine(memory.New(), p), benchRequest()
			b.ReportAllocs()
			for b.Loop() {
				if d := e.Decide(b.Context(), req); !d.Allowed || len(d.Results) != 3 {
					b.Fatalf("this measures something else: %+v", d)
				}
			}
			if from := e.Decide(b.Context(), req).Results[1].From; from != "tier:pro" {
				b.Fatalf("the tier was not resolved: %s", from)
			}
		})
	}
}

// BenchmarkDecideInFlight decides about and releases requests: with a rate limit alone, and with an additional limit of
// requests in flight. If this limit is automatic, the response may be reported as well.
func BenchmarkDecideInFlight(b *testing.B) {
	for _, c := range []struct {
		name, inFlight string
		answered       bool
	}{{"none", "", false}, {"fixed", "1000", false}, {"auto", "auto", false}, {"auto, answered", "auto", true}} {
		b.Run(c.name, func(b *testing.B) {
			rules := "rules:\n  - {name: per-key, key: [api_key], limit: 100000000/second}\n"
			if c.inFlight != "" {
				rules += "  - {name: capacity, in_flight: " + c.inFlight + "}\n"
			}
			e, req := NewEngine(memory.New(), parse(b, rules)), benchRequest()
			req.Ends, req.Timed = true, true
			b.ReportAllocs()
			var d Decision
			for b.Loop() {
				if e.DecideInto(b.Context(), req, &d); !d.Allowed {
					b.Fatalf("this measures something else: %+v", d)
				}
				if c.answered {
					e.Answered(d, time.Now(), 200)
				}
				e.Release(b.Context(), d)
			}
		})
	}
}
