package main

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// grown is a contender of one size, in a series of contenders of growing size.
type grown struct {
	series string
	size   int
	start  any
}

// rulesOf returns the match list of the ith rule that does not apply to the request.
type rulesOf func(i int) string

const (
	literalRules = "growth: rules that do not apply"
	patternRules = "growth: rules with patterns that do not apply"
	growingKeys  = "growth: keys"
)

func growthWorks() []work {
	cols := []string{"CPU ns", "ns", "allocs"}
	return []work{
		{literalRules, "A policy's engine over the memory store, with a reused decision, as in the integrations: one rule applies, and all other rules have other paths", ruleSizes("paths of their own", func(i int) string { return fmt.Sprintf("GET /reports/%d", i) }), matching, cols},
		{patternRules, "The same, but all other rules have patterns that match the request except for its last segment", ruleSizes("patterns", func(i int) string {
			return fmt.Sprintf(`"GET /api/{kind}/{id}/%d/{rest...}", "POST /api/users/{id}"`, i)
		}), matching, cols},
		{growingKeys, "Keys chosen uniformly at random, all of them known, one thread; the limit is never reached", keySizes(), overKeys, cols},
	}
}

func sized(rules int) string { return fmt.Sprintf("rules: %d", rules) }

func ruleSizes(series string, others rulesOf) (all []contender) {
	for _, n := range []int{1, 10, 100, 1000, 10_000} {
		all = append(all, contender{sized(n), ours, grown{series, n, others}})
	}
	return all
}

// keySizes leaves out rivals at sizes for which they need gigabytes.
func keySizes() (all []contender) {
	for _, c := range deciders {
		if c.name != "clock + hash" && c.name != "sluice/memory" && !strings.HasPrefix(c.name, "x/time/rate") {
			continue
		}
		for n := 1000; n <= 10*million && (n <= million || c.role != rival); n *= 10 {
			all = append(all, contender{fmt.Sprintf("%s, keys: %d", c.name, n), c.role, grown{c.name, n, c.start}})
		}
	}
	return all
}

// matching measures decisions by a policy with a number of rules, of which one applies.
func matching(c contender) (sample, error) {
	g := c.start.(grown)
	var b strings.Builder
	b.WriteString("version: 1\nrules:\n  - {name: users, match: 'GET /api/users/{id}/orders', key: [client_ip], limit: 100000000/second}\n")
	for i := range g.size - 1 {
		fmt.Fprintf(&b, "  - {name: other-%d, match: [%s], key: [client_ip], limit: 5/minute}\n", i, g.start.(rulesOf)(i))
	}
	p, err := policyfile.Parse("bench.yaml", []byte(b.String()))
	if err != nil {
		return nil, err
	}
	e, ctx, d := policy.NewEngine(memory.New(), p), context.Background(), policy.Decision{}
	r := &policy.Request{Method: "GET", Host: "api.example.com", Path: "/api/users/42/orders", Peer: netip.MustParseAddr("203.0.113.9")}
	if e.DecideInto(ctx, r, &d); len(d.Results) != 1 {
		return nil, fmt.Errorf("%d rules apply, want one", len(d.Results))
	}
	runtime.GC()
	s := spend(1, budget, keysOf(1), one(1), func(string) bool {
		e.DecideInto(ctx, r, &d)
		return d.Allowed
	}).sample()
	if s["refused"] > 0 {
		return nil, fmt.Errorf("%.4f are refused", s["refused"])
	}
	return s, nil
}

// overKeys measures decisions about a number of keys.
func overKeys(c contender) (sample, error) {
	g := c.start.(grown)
	all, sequence := keysOf(g.size), everyKey(g.size)
	const rate = 1000 // for each key: more than is requested of it in a minute
	decide := g.start.(inMemory)(rate*million/min(g.size, million), time.Minute, g.size)
	for i := range g.size {
		decide(all.at(i))
	}
	runtime.GC()
	s := spend(1, budget, all, sequence, decide).sample()
	if c.role != floor && s["refused"] > 0.01 {
		return nil, fmt.Errorf("%.4f are refused", s["refused"])
	}
	return s, nil
}
