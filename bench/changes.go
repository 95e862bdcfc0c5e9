package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const (
	growingOverrides = "growth: overrides"
	growingSubjects  = "growth: subjects of tiers"
	changingRules    = "growth: a change of a rule"
)

// users is the number of users. Some have an override, or are in a tier.
const users = 100_000

// listed returns p with a table that has entries for n of the users.
type listed func(p *policy.Policy, users keys, n int) (*policy.Policy, error)

func changeWorks() []work {
	cols := []string{"added CPU ns", "CPU ns", "allocs", "change CPU ms"}
	return []work{
		{growingOverrides, "Decisions by one rule about 100,000 users in random order, some of whom have an override: the cost that the overrides add to a decision without overrides, measured in turn, and the cost of replacing all of them", tableSizes("with an override", overridesOf), tabled, cols},
		{growingSubjects, "The same with users who are assigned to a tier by the table of subjects", tableSizes("in a tier", subjectsOf), tabled, cols},
		{changingRules, "The cost of putting a policy with this number of rules in force, compiled from the document", ruleChanges(), changed, []string{"change CPU ms"}},
	}
}

func tableSizes(series string, of listed) (all []contender) {
	for _, n := range []int{0, 1000, users} {
		all = append(all, contender{fmt.Sprintf("%s: %d", series, n), ours, grown{series, n, of}})
	}
	return all
}

func ruleChanges() (all []contender) {
	for _, n := range []int{10, 1000, 10_000} {
		all = append(all, contender{sized(n), ours, grown{"rules", n, nil}})
	}
	return all
}

const plentyText = "100000000/second"

func overridesOf(p *policy.Policy, users keys, n int) (*policy.Policy, error) {
	list := make([]policy.Override, n)
	for i := range list {
		list[i] = policy.Override{Rule: "each", Key: map[string]string{"header:X-User": users.at(i)}, Limit: plentyText}
	}
	return p.WithOverrides(list)
}

func subjectsOf(p *policy.Policy, users keys, n int) (*policy.Policy, error) {
	list := make([]policy.TierSubject, n)
	for i := range list {
		list[i] = policy.TierSubject{Subject: users.at(i), Tier: "pro"}
	}
	return p.WithSubjects(list)
}

// tabled measures decisions with a table, alternating with decisions without it.
func tabled(c contender) (sample, error) {
	g, all := c.start.(grown), keysOf(users)
	p, err := policy.Compile(policy.Document{
		Tiers: policy.Tiers{Subject: "header:X-User"},
		Rules: []policy.Rule{{Name: "each", Key: []string{"header:X-User"}, Limit: plentyText, Tiers: map[string]policy.Limits{"pro": {plentyText}}}},
	})
	if err != nil {
		return nil, err
	}
	change := math.Inf(1)
	var with *policy.Policy
	for range 5 {
		runtime.GC()
		start := cpu()
		if with, err = g.start.(listed)(p, all, g.size); err != nil {
			return nil, err
		}
		change = min(change, float64((cpu()-start).Microseconds())/1000)
	}
	store := memory.New() // one store for both, so that they charge the same states
	const turns = 10
	var bare, whole cost
	for range turns {
		runtime.GC()
		bare.add(deciding1(policy.NewEngine(store, p), all, budget/turns))
		whole.add(deciding1(policy.NewEngine(store, with), all, budget/turns))
	}
	s, below := whole.sample(), bare.sample()
	if s["refused"]+below["refused"] > 0 {
		return nil, fmt.Errorf("the fractions of denials are %.4f and %.4f, want none", s["refused"], below["refused"])
	}
	s["added CPU ns"], s["change CPU ms"] = s["CPU ns"]-below["CPU ns"], change
	return s, nil
}

// deciding1 measures decisions about users in random order, on one thread.
func deciding1(e *policy.Engine, all keys, d time.Duration) cost {
	value := []string{""}
	ctx, r, decision := context.Background(), &policy.Request{Header: http.Header{"X-User": value}}, policy.Decision{}
	return spend(1, d, all, everyKey(users), func(key string) bool {
		value[0] = key
		e.DecideInto(ctx, r, &decision)
		return decision.Allowed && len(decision.Results) == 1
	})
}

// changed measures the CPU time of compiling a changed policy and putting it in force: the least of five times.
func changed(c contender) (sample, error) {
	doc := policy.Document{Rules: make([]policy.Rule, c.start.(grown).size)}
	for i := range doc.Rules {
		doc.Rules[i] = policy.Rule{Name: fmt.Sprintf("rule-%d", i), Match: []string{fmt.Sprintf("GET /reports/%d", i)}, Key: []string{"client_ip"}, Limit: "5/minute"}
	}
	e, best := policy.NewEngine(memory.New(), nil), math.Inf(1)
	for range 5 {
		runtime.GC()
		start := cpu()
		p, err := policy.Compile(doc)
		if err != nil {
			return nil, err
		}
		e.Swap(p)
		best = min(best, float64((cpu()-start).Microseconds())/1000)
	}
	return sample{"change CPU ms": best}, nil
}
