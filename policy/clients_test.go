package policy

import (
	"net/netip"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// BenchmarkClients decides about requests that a rule exempts, by a list of 100,000 networks.
func BenchmarkClients(b *testing.B) {
	var abusers []string
	for i := range 100_000 {
		abusers = append(abusers, netip.AddrFrom4([4]byte{byte(i>>16) + 1, byte(i >> 8), byte(i), 8}).String())
	}
	p := compile(b, Document{Lists: map[string]List{"abusers": {Networks: abusers}}, Rules: []Rule{
		{Name: "blocked", Clients: []string{"abusers"}, Block: true}, {Name: "others", Exempt: true},
	}})
	e, r, d := NewEngine(memory.New(), p), get("/"), Decision{}
	b.ReportAllocs()
	for b.Loop() {
		if e.DecideInto(b.Context(), r, &d); !d.Exempt {
			b.Fatal(d)
		}
	}
}
