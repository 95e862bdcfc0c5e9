package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
)

// account counts units, of limits that do not change while time stands still.
type account struct {
	used, most map[string]int64
	passed     map[string]bool // by the question
	queues     []string        // the rules with queues
	waits      map[string]bool // by the question and the rule
}

// accountPart is a part of a request for one rule.
type accountPart struct {
	rule string
	cost int64
	mode Mode
}

// ask takes all parts or nothing, and returns which of them would be let through.
func (n *account) ask(parts []accountPart, id string) (allowed, repeated bool, each []bool) {
	sums := make(map[string]int64)
	question, peeks := id, true
	var rules []string // in the order in which they are first asked
	for _, p := range parts {
		switch p.mode {
		case Charge:
			sums[p.rule] += p.cost
		case GiveBack:
			if !slices.Contains(n.queues, p.rule) { // whose turns are not given back
				sums[p.rule] -= p.cost
			}
		}
		if peeks = peeks && p.mode == Peek; !slices.Contains(rules, p.rule) {
			rules = append(rules, p.rule)
		}
	}
	for _, rule := range rules {
		question += fmt.Sprint(" ", rule, sums[rule])
	}
	if id != "" && !peeks && n.passed[question] {
		return n.repeat(parts, question, sums)
	}
	fits := true
	for rule, sum := range sums {
		fits = fits && (sum <= 0 || n.used[rule]+sum <= n.most[rule])
	}
	if fits {
		for rule, sum := range sums {
			if !peeks {
				n.waits[question+rule] = n.used[rule] > 0
			}
			n.used[rule] = max(0, n.used[rule]+sum)
		}
		n.passed[question] = n.passed[question] || !peeks
	}
	left := make(map[string]int64)
	for rule := range n.most {
		left[rule] = n.most[rule] - n.used[rule]
	}
	allowed = true
	for _, p := range parts {
		ok := p.mode == GiveBack || fits && p.mode == Charge || p.cost <= left[p.rule]
		if each = append(each, ok); ok && !fits {
			switch p.mode {
			case Charge:
				left[p.rule] -= p.cost
			case GiveBack:
				left[p.rule] = min(n.most[p.rule], left[p.rule]+p.cost)
			}
		}
		allowed = allowed && (ok || p.mode == Peek && !peeks)
	}
	return allowed, false, each
}

// repeat lets all parts through again. Those that do not wait for a turn any more take another one.
func (n *account) repeat(parts []accountPart, question string, sums map[string]int64) (allowed, repeated bool, each []bool) {
	fits, full := true, make(map[string]bool)
	for _, rule := range n.queues {
		if n.waits[question+rule] {
			sums[rule] = 0
		}
		full[rule] = sums[rule] > 0 && n.used[rule]+sums[rule] > n.most[rule]
		fits = fits && !full[rule]
	}
	for _, rule := range n.queues {
		if fits {
			n.used[rule] += sums[rule]
		}
	}
	allowed = true
	for _, p := range parts {
		each = append(each, !full[p.rule])
		allowed = allowed && (p.mode == Peek || !full[p.rule])
	}
	return allowed, true, each
}

// Parts that are decided together are all taken or none, whatever counts them, and however they
// share limits.
func TestTogetherRandomly(t *testing.T) {
	seed := seed.Of(t)
	r := dice{rand.New(rand.NewPCG(seed, 2))}
	passed, refused, repeated := 0, 0, 0
	for _, a := range sluice.Algorithms() {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, fmt.Sprintf(`
rules:
  - {name: a, match: [/a], limit: 12/day, algorithm: %[1]s}
  - {name: b, match: [/b], limit: 30/day, algorithm: %[1]s}
  - {name: c, match: [/c], limit: 7/day, algorithm: fixed_window}`, a))
			n := account{map[string]int64{}, map[string]int64{"a": 12, "b": 30, "c": 7}, map[string]bool{}, nil, map[string]bool{}}
			if a == sluice.LeakyBucket { // whose places are fewer
				n.queues = []string{"a", "b"}
				n.most["a"], n.most["b"] = remains(t, e, "a"), remains(t, e, "b")
			}
			for step := range 600 {
				parts := make([]accountPart, 1+r.IntN(6))
				reqs, ds := make([]*Request, len(parts)), make([]Decision, len(parts))
				id := pick(r, "", "", "", "one", "two")
				for i := range parts {
					parts[i] = accountPart{pick(r, "a", "b", "c"), 1 + r.Int64N(4), pick(r, Charge, Charge, Charge, GiveBack, GiveBack, Peek)}
					reqs[i] = get("/" + parts[i].rule)
					reqs[i].Cost, reqs[i].Mode = parts[i].cost, parts[i].mode
				}
				reqs[0].ID = id
				allowed, again, each := n.ask(parts, id)
				if got := e.DecideTogether(t.Context(), reqs, ds); got != allowed {
					t.Fatalf("seed %d, %v, step %d: %+v: %v, want %v", seed, a, step, parts, got, allowed)
				}
				for i := range ds {
					if ds[i].Allowed != each[i] || ds[i].Repeated != again {
						t.Fatalf("seed %d, %v, step %d: of %+v part %d is %+v, want %v", seed, a, step, parts, i, ds[i], each[i])
					}
				}
				for rule := range n.most {
					if got := n.most[rule] - remains(t, e, rule); got != n.used[rule] {
						t.Fatalf("seed %d, %v, step %d: %+v: %d of %s are used, want %d", seed, a, step, parts, got, rule, n.used[rule])
					}
				}
				switch {
				case again:
					repeated++
				case allowed:
					passed++
				default:
					refused++
				}
			}
		})
	}
	if passed < 300 || refused < 300 || repeated < 20 {
		t.Errorf("premise, seed %d: %d passed, %d were refused, %d repeated", seed, passed, refused, repeated)
	}
}

// A part that lacks something, or is blocked, has all of them refused, and nothing is taken.
func TestTogetherRefusedBefore(t *testing.T) {
	e := engine(t, `
rules:
  - {name: all, limit: 10/day}
  - {name: keyed, match: [/keyed], key: [api_key], missing: refuse, limit: 10/day}
  - {name: blocked, match: [/blocked], block: true}
  - {name: free, match: [/free], exempt: true}`)
	ds := make([]Decision, 2)
	for _, other := range []string{"/keyed", "/blocked"} {
		before := remains(t, e, "all")
		if e.DecideTogether(t.Context(), []*Request{get("/"), get(other)}, ds) || !ds[0].Allowed || ds[1].Allowed {
			t.Errorf("%s: %+v", other, ds)
		}
		counted := int64(0)
		if other == "/keyed" {
			counted = 1 // a malformed request is not free
		}
		if n := remains(t, e, "all"); n != before-counted {
			t.Errorf("%s: %d are left, want %d", other, n, before-counted)
		}
	}
	if !e.DecideTogether(t.Context(), []*Request{get("/free"), get("/")}, ds) || !ds[0].Exempt || remains(t, e, "all") != 8 {
		t.Errorf("%+v, %d are left", ds, remains(t, e, "all"))
	}
	if !e.DecideTogether(t.Context(), nil, nil) {
		t.Error("nothing at all is refused")
	}
}

// Parts that wait in one queue wait for the same turn, which is free once all of them have left.
func TestTogetherQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: q, limit: 1/second burst 10, algorithm: leaky_bucket}]")
		ds := make([]Decision, 3)
		e.DecideTogether(t.Context(), []*Request{get("/"), get("/"), get("/")}, ds)
		e.DecideTogether(t.Context(), []*Request{get("/"), get("/"), get("/")}, ds)
		for i := range ds {
			if !ds[i].Allowed || ds[i].Delay != 3*time.Second || ds[i].Results[0].Delay != 3*time.Second {
				t.Errorf("part %d: %+v, want a delay of 3 s", i, ds[i])
			}
			if d := e.Decide(t.Context(), get("/")); d.Delay != time.Duration(6+i)*time.Second {
				t.Errorf("part %d has yet to leave, and another request waits for %v", i, d.Delay)
			}
			e.Refund(t.Context(), ds[i])
		}
		if d := e.Decide(t.Context(), get("/")); d.Delay != 3*time.Second {
			t.Errorf("all parts have left, and the next request waits for %v", d.Delay)
		}
	})
}

// More than a store takes at once is refused before it is asked.
func TestTogetherTooMany(t *testing.T) {
	e := engine(t, "rules: [{name: a, key: [client_ip], limit: 1/day}, {name: b, limit: 5/day}]")
	var reqs []*Request
	for i := range 1025 {
		reqs = append(reqs, request("GET", "/", fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	ds := make([]Decision, len(reqs))
	if e.DecideTogether(t.Context(), reqs, ds) || ds[0].Allowed || ds[1024].Missing == "" || remains(t, e, "b") != 5 {
		t.Errorf("%+v", ds[0])
	}
}

// What the parts of one request cost less than estimated is given back.
func TestTogetherSettles(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log"} {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, "rules: [{name: a, limit: 100/hour, algorithm: "+algorithm+", cost: {response_header: X-Cost, estimate: 30, max: 60}}]")
			ds := make([]Decision, 3)
			if !e.DecideTogether(t.Context(), []*Request{get("/"), get("/"), get("/")}, ds) {
				t.Fatalf("%s: %s", algorithm, said(ds[0]))
			}
			for i, cost := range []string{"10", "0", "35"} {
				e.Settle(t.Context(), ds[i], header(200, "X-Cost", cost))
			}
			if left := remains(t, e, "a"); left != 55 {
				t.Errorf("%s: %d of 100 are left after costs of 10, 0 and 35", algorithm, left)
			}
		})
	}
}
