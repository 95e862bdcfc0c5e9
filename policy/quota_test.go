package policy

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

const quotas = `
tiers: {from: header:X-Plan}
rules:
  - {name: health, match: /health, exempt: true}
  - {name: staff, clients: [192.0.2.99], exempt: true}
  - {name: closed, match: /closed, block: true}
  - {name: address, key: [client_ip], limit: 9/day}
  - {name: key, key: [api_key], missing: skip, limits: [5/second, 50/day], tiers: {pro: 70/day}}
  - {name: needs, key: ["header:X-Needed"], missing: refuse, limit: 9/day}
  - {name: login, match: POST /login, key: [client_ip, body:user], limit: 9/day}
  - {name: search, key: [query:user], limit: 9/day}
  - {name: orders, match: "GET /orders/{id}", key: [client_ip, route], limit: 2/day, cost: 2}
  - {name: beta, headers: {X-Beta: "1"}, key: [client_ip], limit: 3/day}
  - {name: watched, key: [client_ip], limit: 1/day, shadow: true}
overrides:
  - {rule: key, key: {api_key: evil}, block: true}
  - {rule: key, key: {api_key: free}, exempt: true}
`

// FuzzQuota holds that what a quota tells of a rule is what the rule then says.
func FuzzQuota(f *testing.F) {
	f.Add("/orders/7", "GET", "k", "pro", uint8(3))
	f.Add("", "POST", "", "", uint8(0))
	p := parse(f, quotas)
	f.Fuzz(func(t *testing.T, path, method, key, plan string, before uint8) {
		e := NewEngine(memory.NewSize(1<<20), p)
		r := request(method, path, "192.0.2.1", "X-Api-Key: "+key, "X-Plan: "+plan)
		for range before % 16 {
			e.Decide(t.Context(), r)
		}
		d := e.Quota(t.Context(), r)
		x := e.Explain(t.Context(), r)
		if path != "" && (d.Exempt != x.Decision.Exempt || d.Blocked != x.Decision.Blocked) {
			t.Fatalf("%+v, explained as %+v", d, x.Decision)
		}
		for _, q := range d.Results {
			found := path == "" || x.Decision.Missing != "" // then explained by fewer rules
			for _, is := range x.Decision.Results {
				found = found || is.Rule == q.Rule && is.Name == q.Name && is.From == q.From && is.Plan == q.Plan && is.Remaining == q.Remaining
			}
			if !found {
				t.Fatalf("%s", fmt.Sprintf("%+v is not in %+v", q, x.Decision))
			}
		}
	})
}
