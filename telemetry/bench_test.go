package telemetry_test

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// BenchmarkDecide is what a decision by three rules costs, alone and seen: with counts only, and with
// subjects.
func BenchmarkDecide(b *testing.B) {
	for name, c := range map[string]*telemetry.Config{"alone": nil, "counted": {}, "subjects": {Subjects: true}} {
		b.Run(name, func(b *testing.B) {
			p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
				{Name: "per-address", Key: []string{"client_ip"}, Limit: "1000000/second", Algorithm: "sliding_window_counter"},
				{Name: "per-key", Key: []string{"header:X-API-Key"}, Limit: "1000000/second burst 1000000"},
				{Name: "all", Limit: "1000000/second"},
			}})
			if err != nil {
				b.Fatal(err)
			}
			e := policy.NewEngine(memory.New(), p)
			if c != nil {
				telemetry.Watch(e, *c)
			}
			req := policy.Request{Method: "GET", Path: "/api/users/42", Peer: netip.MustParseAddr("203.0.113.9"), Door: "gateway", Header: http.Header{"X-Api-Key": {"k-1"}}}
			var d policy.Decision
			b.ReportAllocs()
			for b.Loop() {
				if e.DecideInto(b.Context(), &req, &d); !d.Allowed || len(d.Results) != 3 {
					b.Fatalf("not what is to be measured: %+v", d)
				}
			}
		})
	}
}
