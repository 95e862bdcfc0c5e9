package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
)

// account is a model that counts units. Time does not pass, so limits do not drain.
type account struct {
	used, most map[string]int64
	passed     map[string]bool // by request ID and charges
	queues     []string        // the rules with queues
	waits      map[string]bool // by request ID, charges and rule
}

// accountPart is a part of a request for one rule.
type accountPart struct {
	rule string
	cost int64
	mode Mode
}

// ask takes all parts or none, and returns which of them would be allowed.
func (n *account) ask(parts []accountPart, id string) (allowed, repeated bool, each []bool) {
	sums := make(map[string]int64)
	question, peeks := id, true
	var rules []string // in the order of their first parts
	for _, p := range parts {
		switch p.mode {
		case Charge:
			sums[p.rule] += p.cost
		case GiveBack:
			if !slices.Contains(n.queues, p.rule) { // turns are not given back
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

// repeat allows all parts again. Parts that no longer wait for a turn take another one.
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

// Parts that are decided together are all taken or none, with every algorithm, also if several parts use the same
// limit.
func TestTogetherRandomly(t *testing.T) {
	t.Parallel()
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
			if a == sluice.LeakyBucket { // a queue has fewer turns
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

// Requests with more charges than a store takes at once are denied, and nothing is charged.
func TestTogetherTooMany(t *testing.T) {
	t.Parallel()
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

// The memory for IDs in a pooled work does not grow with the number of decisions: see Engine.end.
func TestIDsOfPartsAreForgotten(t *testing.T) {
	e := engine(t, "rules: [{name: r, key: [client_ip], limit: 100000/day, count: {status: [401]}}]")
	w := e.newWork()
	e.pool.New = func() any { return w }
	e.pool.Put(w)
	ds := make([]Decision, 1)
	for i := range 1000 {
		r := get("/")
		r.ID = fmt.Sprint(i)
		e.DecideTogether(t.Context(), []*Request{r}, ds)
		if err := e.SettleRequest(t.Context(), r, Outcome{Status: 200}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.charges.once.keys.Cap(); n > 1000 {
		t.Errorf("the keys of IDs take %d bytes", n)
	}
}
