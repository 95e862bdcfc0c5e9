package policy_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

func Example() {
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Name: "per-address", Key: []string{"client_ip"}, Limit: "100/hour"},
		{Name: "search", Match: []string{"GET /search"}, Key: []string{"client_ip"}, Limit: "2/hour"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine := policy.NewEngine(memory.New(), p)
	for range 3 {
		d := engine.Decide(context.Background(), &policy.Request{
			Method: "GET", Path: "/search", Peer: netip.MustParseAddr("192.0.2.1"),
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

func ExampleCompile() {
	_, err := policy.Compile(policy.Document{Rules: []policy.Rule{
		{Name: "login", Match: []string{"POST login"}, Limit: "5/fortnight"},
	}})
	fmt.Println(err)
	// Output:
	// rules[0].match[0]: rule "login": pattern "POST login": missing "/": write a pattern such as "GET /path" or "example.com/path"
	// rules[0].limit: rule "login": limit "5/fortnight": the period "fortnight" is neither second, minute, hour or day nor a length such as 90s, 1h30m or 7d; write it as in "100/minute burst 20"
}
