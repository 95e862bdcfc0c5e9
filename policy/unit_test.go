package policy

import (
	"context"
	"slices"
	"testing"
)

// A settlement of a cost that the response reports has the unit, the limit's position, what is owed and why the cost is
// not known; of another cost it has no unit.
func TestSettlementOfBudget(t *testing.T) {
	t.Parallel()
	e := engine(t, `
rules:
  - {name: tokens, limits: [100/hour, 1000/day], key: ["header:X-Team"], cost: {tokens: total, estimate: 30}}
  - {name: bytes, limit: 1000/hour, cost: {response_bytes: 10}}
`)
	var seen []Settlement
	e.ObserveSettled(func(_ context.Context, s *Settlement) { seen = append(seen, *s) })
	req := get("/", "X-Team: red")
	e.Settle(t.Context(), pass(t, e, req), Outcome{Status: 200, Bytes: 7, Numbers: map[string]int64{"usage.prompt_tokens": 100, "usage.completion_tokens": 50}})
	type part struct {
		rule, key      string
		index          int
		unit           Unit
		estimate, cost int64
		owed           int64
		unread         string
	}
	parts := func() (all []part) {
		for _, s := range seen {
			all = append(all, part{s.Rule, s.Key, s.Index, s.Unit, s.Estimate, s.Cost, s.Owed, s.Unread})
		}
		slices.SortFunc(all, func(a, b part) int { return slices.Compare([]int{-len(a.rule), a.index}, []int{-len(b.rule), b.index}) })
		seen = nil
		return all
	}
	want := []part{{"tokens", "tokens/red", 0, Tokens, 30, 150, 50, ""}, {"tokens", "tokens/red", 1, Tokens, 30, 150, 0, ""}, {"bytes", "bytes/", 0, NoUnit, 1, 1, 0, ""}}
	if got := parts(); !slices.Equal(got, want) {
		t.Errorf("settled\n%+v, want\n%+v", got, want)
	}
	e.Settle(t.Context(), pass(t, e, get("/", "X-Team: blue")), Outcome{Status: 200})
	if got := parts(); len(got) != 3 || got[0].unread != "no_body" || got[0].cost != 30 {
		t.Errorf("without a response settled\n%+v", got)
	}
	if all := e.Policy().Budgets(); !slices.Equal(all, []Budget{{"tokens", Tokens}}) {
		t.Errorf("the budgets are %v", all)
	}
}

// Amounts of a limit in USD are in micro-USD, whatever the units of the limit.
func TestSettlementOfMoney(t *testing.T) {
	t.Parallel()
	e := engine(t, `
prices: {"*": {input: 1, output: 10}}
rules: [{name: usd, limits: [50 USD/day, 100000000 USD/30d], cost: {usd: prices, estimate: 20000}}]
`)
	limits := map[int64]bool{}
	e.ObserveSettled(func(_ context.Context, s *Settlement) {
		reserved, settled := s.Amounts()
		limits[s.Limit.Money] = true
		if s.Unit != USD || reserved != 20_000 || settled != 70_000 {
			t.Errorf("under %v %d %v are reserved and %d settled", s.Limit, reserved, s.Unit, settled)
		}
	})
	e.Settle(t.Context(), pass(t, e, get("/")), Outcome{Status: 200, Numbers: map[string]int64{"usage.prompt_tokens": 20_000, "usage.completion_tokens": 5000}})
	if len(limits) != 2 {
		t.Errorf("the limits have the units %v, want two of them", limits)
	}
}
