package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const threeRules = "policy: three rules that match"

const threeRulesText = `version: 1
tiers: {from: header:X-Plan, default: free}
rules:
  - {name: per-address, key: [client_ip], limit: 100000000/second}
  - {name: per-key, key: [api_key], limit: 100000000/second, tiers: {pro: 200000000/second}}
  - {name: users, match: "GET /api/users/{id}", key: [api_key, route], limit: 100000000/second}
`

func policyWorks() []work {
	return []work{{
		threeRules, "The cost that a policy's engine adds to the memory store, which is called in turn with the three charges that the engine makes",
		[]contender{{"sluice/policy", ours, nil}}, overStore, []string{"added CPU ns", "CPU ns", "store CPU ns", "allocs"},
	}}
}

// tapped is a store that keeps the charges of its last Take.
type tapped struct {
	sluice.Store
	charges []sluice.Charge
}

func (t *tapped) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	t.charges = slices.Clone(charges)
	for i := range t.charges {
		t.charges[i].Key = strings.Clone(t.charges[i].Key)
	}
	return t.Store.Take(ctx, charges, receipts)
}

// overStore measures decisions of an engine, alternating with Takes of the same charges from its store.
func overStore(contender) (sample, error) {
	p, err := policyfile.Parse("bench.yaml", []byte(threeRulesText))
	if err != nil {
		return nil, err
	}
	ctx, store := context.Background(), memory.New()
	request := &policy.Request{
		Method: "GET", Host: "api.example.com", Path: "/api/users/42", Peer: netip.MustParseAddr("203.0.113.9"),
		Header: http.Header{"X-Api-Key": {"k-0123456789abcdef"}, "X-Plan": {"pro"}, "Accept": {"*/*"}},
	}
	tap := &tapped{Store: store}
	policy.NewEngine(tap, p).Decide(ctx, request)
	if len(tap.charges) != 3 {
		return nil, fmt.Errorf("%d charges, want three", len(tap.charges))
	}
	e, d, receipts := policy.NewEngine(store, p), policy.Decision{}, make([]sluice.Receipt, 3)
	const turns = 10
	var bare, whole cost
	for range turns {
		runtime.GC()
		bare.add(spend(1, budget/turns, keysOf(1), one(1), func(string) bool {
			return store.Take(ctx, tap.charges, receipts) == nil && sluice.Admitted(tap.charges, receipts)
		}))
		whole.add(spend(1, budget/turns, keysOf(1), one(1), func(string) bool {
			e.DecideInto(ctx, request, &d)
			return d.Allowed && len(d.Results) == 3
		}))
	}
	s, below := whole.sample(), bare.sample()
	if s["refused"]+below["refused"] > 0 {
		return nil, fmt.Errorf("the fractions of denials are %.4f and %.4f, want none", s["refused"], below["refused"])
	}
	s["store CPU ns"], s["added CPU ns"] = below["CPU ns"], s["CPU ns"]-below["CPU ns"]
	return s, nil
}
