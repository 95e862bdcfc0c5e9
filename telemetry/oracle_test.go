package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// running runs a fleet until the test ends.
func running(t *testing.T, f *telemetry.Fleet) *telemetry.Fleet {
	go f.Run(t.Context())
	return f
}

func compile(t testing.TB, rules ...policy.Rule) *policy.Policy {
	t.Helper()
	p, err := policy.Compile(policy.Document{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// faulty is a store that fails now and then.
type faulty struct {
	sluice.Store
	random *rand.Rand
}

func (f *faulty) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if f.random.IntN(8) == 0 {
		return errors.New("unavailable")
	}
	return f.Store.Take(ctx, charges, receipts)
}

func randomRules(r *rand.Rand) (rules []policy.Rule) {
	for i := range 1 + r.IntN(6) {
		rule := policy.Rule{Name: fmt.Sprintf("rule%d", r.IntN(12))}
		if slices.ContainsFunc(rules, func(o policy.Rule) bool { return o.Name == rule.Name }) {
			continue
		}
		if r.IntN(2) == 0 {
			rule.Match = []string{fmt.Sprintf("/%d/{rest...}", r.IntN(3))}
		}
		switch r.IntN(10) {
		case 0:
			rule.Exempt = true
		case 1:
			rule.Block, rule.Shadow = true, r.IntN(2) == 0
			rule.Clients = []string{"10.0.0.1"}
		default:
			rule.Key = []string{"header:X-User"}
			rule.Missing = []string{"", "refuse", "skip"}[r.IntN(3)]
			rule.Shadow = r.IntN(3) == 0
			rule.OnError = []string{"", "allow", "deny", "local"}[r.IntN(4)]
			if rule.Limit = fmt.Sprintf("%d/hour", 1+r.IntN(20)); r.IntN(3) == 0 {
				rule.Limit, rule.Limits = "", []string{rule.Limit, "30/day"}
			} else if i == 0 && r.IntN(2) == 0 {
				rule.Limit, rule.Algorithm = "60/minute", "leaky_bucket"
			}
			if rule.Algorithm == "" && r.IntN(4) == 0 {
				rule.Over = "mark"
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// seen counts decisions in the simplest way.
type seen struct {
	rules       map[string]*telemetry.Totals
	doors       map[string]*telemetry.DoorTotals
	all         telemetry.Counts
	took        map[string]uint64
	malformed   uint64
	withoutEach uint64 // decisions made without the store
}

func newSeen() *seen {
	return &seen{rules: map[string]*telemetry.Totals{}, doors: map[string]*telemetry.DoorTotals{}, took: map[string]uint64{}}
}

// note counts a decision as the outcomes are defined. pardoned means that the request lacks a part of a key, and only
// shadow rules would deny it for that.
func (s *seen) note(door string, mode policy.Mode, d *policy.Decision, pardoned bool) {
	if mode != policy.Charge {
		return
	}
	at := s.doors[door]
	if at == nil {
		at = &telemetry.DoorTotals{Door: door}
		s.doors[door] = at
	}
	s.took[door]++
	if d.Repeated {
		at.Repeated++
		at.Counts[telemetry.Allow]++
		return
	}
	byRule := map[string][]policy.Result{}
	for _, r := range d.Results {
		name := r.Rule
		if r.From == "caller" {
			name = "*caller"
		}
		byRule[name] = append(byRule[name], r)
	}
	anyWould, anyLocal, anyMarked := pardoned, d.Degraded, false
	for name, results := range byRule {
		total := s.rules[name]
		if total == nil {
			total = &telemetry.Totals{Rule: name}
			s.rules[name] = total
		}
		has := func(is func(r policy.Result) bool) bool { return slices.ContainsFunc(results, is) }
		refuses := has(func(r policy.Result) bool { return !r.Allowed })
		local := has(func(r policy.Result) bool { return r.Origin == sluice.ByLocalShare || r.Origin == sluice.ByOnError })
		outcome := telemetry.Allow
		if refuses {
			outcome = telemetry.Deny
			if results[0].Marks && d.Allowed {
				outcome, anyMarked = telemetry.Marked, true
			} else if results[0].Marks { // another rule denies
				outcome = telemetry.Allow
			} else if results[0].Shadow {
				outcome, anyWould = telemetry.WouldDeny, true
			}
		} else if local {
			outcome = telemetry.Degraded
		} else if has(func(r policy.Result) bool { return r.Delay > 0 }) {
			outcome = telemetry.Delayed
		}
		total.Counts[outcome]++
		if local {
			total.Local++
			anyLocal = true
		}
		if !refuses && d.Now > 0 && has(func(r policy.Result) bool { return float64(r.Remaining) < float64(r.Plan.Capacity)/5 }) {
			total.Near++
		}
	}
	whole := telemetry.Allow
	if !d.Allowed {
		whole = telemetry.Deny
	} else if anyMarked {
		whole = telemetry.Marked
	} else if anyWould {
		whole = telemetry.WouldDeny
	} else if d.Degraded {
		whole = telemetry.Degraded
	} else if d.Delay > 0 {
		whole = telemetry.Delayed
	}
	at.Counts[whole]++
	s.all[whole]++
	if d.Exempt {
		at.Exempt++
	}
	if d.Missing != "" {
		at.Malformed++
		s.malformed++
	}
	if anyLocal {
		s.withoutEach++
	}
}

// check compares the counts of a recorder with those of s, for the rules in force.
func (s *seen) check(t *testing.T, what string, r *telemetry.Recorder, names []string) {
	t.Helper()
	want := map[string]telemetry.Totals{}
	for _, name := range append(slices.Clone(names), "*caller") {
		if c := s.rules[name]; c != nil {
			want[name] = *c
		} else if name != "*caller" {
			want[name] = telemetry.Totals{Rule: name}
		}
	}
	got := map[string]telemetry.Totals{}
	var order []string
	for _, c := range r.Rules() {
		got[c.Rule] = c
		order = append(order, c.Rule)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("%s: the rules have\n%v, want\n%v", what, got, want)
	}
	if !slices.Equal(order[:len(names)], names) {
		t.Errorf("%s: want the rules in the order %q, got %q", what, names, order)
	}
	doors := r.Doors()
	for _, c := range doors {
		w := s.doors[c.Door]
		if c.Counts != w.Counts || c.Exempt != w.Exempt || c.Malformed != w.Malformed || c.Repeated != w.Repeated {
			t.Errorf("%s: integration %s has %+v, want %+v", what, c.Door, c, w)
		}
		var n uint64
		for _, b := range c.Took.Counts {
			n += b
		}
		if n != s.took[c.Door] || len(c.Took.Counts) != len(c.Took.Bounds)+1 || c.Took.Sum <= 0 {
			t.Errorf("%s: integration %s took %+v, for %d decisions", what, c.Door, c.Took, s.took[c.Door])
		}
	}
	if len(doors) != len(s.doors) {
		t.Errorf("%s: %d integrations, want %d", what, len(doors), len(s.doors))
	}
}

func sum(all []telemetry.Counts) (n telemetry.Counts) {
	for i := range all {
		n.Add(&all[i])
	}
	return n
}

// Random decisions are counted as the outcomes are defined, while the policy changes.
func TestOracle(t *testing.T) {
	t.Parallel()
	const rounds, requests = 40, 300
	outcomes := telemetry.Counts{}
	for round := range rounds {
		random := rand.New(rand.NewPCG(1, uint64(round)))
		p := compile(t, randomRules(random)...)
		e := policy.NewEngine(&faulty{memory.New(), random}, p)
		r := telemetry.Watch(e, telemetry.Config{Subjects: round%2 == 0})
		pardoned := false
		e.Observe(func(_ context.Context, o *policy.Observation) { pardoned = o.Pardoned() != "" })
		fleet := &telemetry.Fleet{Recorder: r}
		s := newSeen()
		limit, err := sluice.ParseLimit("5/hour")
		if err != nil {
			t.Fatal(err)
		}
		plan, err := sluice.NewPlan(limit)
		if err != nil {
			t.Fatal(err)
		}
		for i := range requests {
			req := &policy.Request{
				Path: fmt.Sprintf("/%d/x", random.IntN(3)), Door: []string{"gateway", "auth", "check"}[random.IntN(3)],
				Peer: netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(3))}), Header: http.Header{},
			}
			if random.IntN(6) > 0 {
				req.Header.Set("X-User", fmt.Sprint(random.IntN(4)))
			}
			switch random.IntN(12) {
			case 0:
				req.Mode = policy.Peek
			case 1:
				req.Mode = policy.GiveBack
			case 2:
				req.ID = fmt.Sprint(random.IntN(10))
			case 3:
				req.Subject = e.Adhoc("rule1", fmt.Sprint(random.IntN(3)), plan, sluice.Local)
			}
			if random.IntN(100) == 0 {
				next := compile(t, randomRules(random)...)
				for _, name := range e.Policy().RuleNames() {
					if !slices.Contains(next.RuleNames(), name) {
						delete(s.rules, name) // a removed rule that returns starts with new counts
					}
				}
				e.Swap(next)
				r.Rules()
			}
			if random.IntN(20) == 0 {
				if err := e.SwapOverrides(nil); err != nil {
					t.Fatal(err)
				}
			}
			d := e.Decide(t.Context(), req)
			s.note(req.Door, req.Mode, &d, pardoned)
			if i%97 == 0 {
				fleet.View()
			}
		}
		what := fmt.Sprintf("round %d", round)
		names := e.Policy().RuleNames()
		s.check(t, what, r, names)
		v := telemetry.Fleet{Recorder: r}
		view := v.View()
		if got := sum(view.All.Recent); got != s.all || sum(view.All.Days) != s.all || view.Malformed != s.malformed {
			t.Errorf("%s: the total is %v, want %v; %d are malformed, want %d", what, got, s.all, view.Malformed, s.malformed)
		}
		if got := view.Instances[0].Store.Local; got != s.withoutEach {
			t.Errorf("%s: %d decisions were made without the store, but the view has %d", what, s.withoutEach, got)
		}
		for _, rule := range view.Rules {
			want := telemetry.Totals{}
			if w := s.rules[rule.Name]; w != nil {
				want = *w
			}
			if got := sum(rule.Recent); got != want.Counts || sum(rule.Days) != want.Counts || rule.Near != [telemetry.Windows]uint64{want.Near, want.Near, want.Near} {
				t.Errorf("%s: rule %s has %v, near %v, want %+v", what, rule.Name, got, rule.Near, want)
			}
		}
		outcomes.Add(&s.all)
	}
	for i, n := range outcomes {
		if n == 0 {
			t.Errorf("premise: no decision had the outcome %v", telemetry.Outcome(i))
		}
	}
}
