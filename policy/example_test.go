package policy_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

func Example() {
	p, err := policy.Parse("api.yaml", []byte(`
version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 100/hour}
  - {name: search, match: GET /search, key: [client_ip], limit: 2/hour}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	engine := policy.NewEngine(memory.New(), p)
	for range 3 {
		d := engine.Decide(context.Background(), &policy.Request{
			Method: "GET", Path: "/search", Client: netip.MustParseAddr("192.0.2.1"),
		})
		fmt.Println("allowed:", d.Allowed)
		for _, r := range d.Results {
			fmt.Println(" ", r.Rule, "remaining:", r.Remaining)
		}
	}
	// Output:
	// allowed: true
	//   per-address remaining: 99
	//   search remaining: 1
	// allowed: true
	//   per-address remaining: 98
	//   search remaining: 0
	// allowed: false
	//   per-address remaining: 98
	//   search remaining: 0
}

func ExampleParse() {
	_, err := policy.Parse("api.yaml", []byte(`
version: 1
rules:
  - name: login
    mach: POST /login
    limit: 5/fortnight
`))
	fmt.Println(err)
	// Output:
	// api.yaml:5: rule "login": unknown key "mach" in a rule; did you mean "match"?
	// api.yaml:6: rule "login": limit "5/fortnight": the period "fortnight" is neither second, minute, hour or day nor a length such as 90s, 1h30m or 7d; write it as in "100/minute burst 20"
}
