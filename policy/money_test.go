package policy

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// inUSD returns a policy with a rule that has limits in USD.
func inUSD(rule string) string {
	return "prices: {\"*\": {input: 15, output: 75}}\nrules: [{name: usd, cost: {usd: prices, estimate: 1}, " + rule + "}]"
}

// costing returns a request that costs so many micro-USD.
func costing(micro int64) *Request {
	r := get("/")
	r.Cost = micro
	return r
}

// A limit in USD counts in the finest unit with which its numbers are exact and leave room for a debt.
func TestUnits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, algorithm string
		unit             int64
		counted          string
	}{
		{"50 USD/day", "fixed_window", 1, "50 USD/day"},
		{"1000 USD/month", "fixed_window", 1, "1000 USD/month"},
		{"1000 USD/month from 15", "", 1, "1000 USD/month from 15"},
		{"1000 USD/30d", "fixed_window", 10, "1000 USD/30d"},
		{"1000 USD/30d", "token_bucket", 1, "1000 USD/30d burst 1000 USD"},
		{"30000 USD/day", "sliding_window_counter", 10, "30000 USD/day"},
		{"30000 USD/day", "sliding_window_log", 100, "30000 USD/day"},
		{"999.999937 USD/30d", "token_bucket", 10, "999.99993 USD/30d burst 999.99993 USD"},
		{"50 USD/day", "sliding_window_log_exact", 100, "50 USD/day"},
		{"0.000001 USD/365d", "fixed_window", 1, "0.000001 USD/365d"},
	} {
		plan := LimitPlan(c.limit, c.algorithm)
		if plan == nil {
			t.Errorf("%s as %s has no plan", c.limit, c.algorithm)
			continue
		}
		if plan.Limit.Money != c.unit || plan.String() != c.counted {
			t.Errorf("%s as %s counts %v in units of %d, want %s in %d", c.limit, c.algorithm, plan, plan.Limit.Money, c.counted, c.unit)
		}
	}
}

// A limit restarts its count if its unit changes, or if it is no longer in USD. With another amount in the same unit,
// it keeps its count.
func TestUnitOfCount(t *testing.T) {
	t.Parallel()
	of := func(text string) *sluice.Plan { return LimitPlan(text, "fixed_window") }
	base := of("50 USD/day")
	if of("60 USD/day").Fingerprint != base.Fingerprint {
		t.Error("another amount restarts the count")
	}
	for _, other := range []string{"30000 USD/day", "50000000/day", "50 USD/2d"} {
		if of(other).Fingerprint == base.Fingerprint {
			t.Errorf("50 USD/day shares a count with %s", other)
		}
	}
}

// The reserved cost and the settled cost are each rounded up to a whole unit, so the difference is neither lost nor
// charged twice.
func TestSettleMoney(t *testing.T) {
	virtual(t, func(t *testing.T) {
		e := engine(t, inUSD("limit: 1000 USD/30d, algorithm: fixed_window"))
		const capacity = 100_000_000 // units of 10 micro-USD
		for _, c := range []struct{ reserved, settled, units int64 }{
			{15, 12, 2}, {15, 20, 2}, {15, 31, 4}, {15, 9, 1}, {15, -1, 0}, {1, 1, 1}, {10, 10, 1}, {1_000_000_000, 5, 1},
		} {
			reset(t, e, "usd")
			d := pass(t, e, costing(c.reserved))
			e.Settle(t.Context(), d, Outcome{Status: 200, Cost: c.settled})
			if used := capacity - remains(t, e, "usd"); used != c.units {
				t.Errorf("%d micro-USD reserved, %d settled: %d units are used, want %d", c.reserved, c.settled, used, c.units)
			}
		}
	})
}

// Each limit of a rule charges in its own unit, and refunds are rounded down.
func TestUnitsOfSeveralLimits(t *testing.T) {
	virtual(t, func(t *testing.T) {
		e := engine(t, inUSD("key: [client_ip], limits: [50 USD/day, 1000 USD/30d], algorithm: fixed_window"))
		d := pass(t, e, costing(123))
		if a, b := d.Results[0], d.Results[1]; a.Cost != 123 || b.Cost != 13 || a.Plan.Limit.Money != 1 || b.Plan.Limit.Money != 10 {
			t.Errorf("a cost of 123 is %d of %v and %d of %v", a.Cost, a.Plan, b.Cost, b.Plan)
		}
		results, err := subjectOf(t, e, "usd", map[string]string{"client_ip": "192.0.2.1"}).Refund(t.Context(), 115)
		if err != nil || results[0].Remaining != 50_000_000-8 || results[1].Remaining != 100_000_000-2 {
			t.Errorf("115 of 123 given back: %+v, %v", results, err)
		}
	})
}

// usdOracle counts a limit in exact micro-USD: the costs that passed with their times, or the level of a bucket.
type usdOracle struct {
	limit  sluice.Limit // in micro-USD
	bucket bool
	window bool // counts an aligned window, and otherwise the last period
	at     []time.Time
	costs  []int64
	level  *big.Rat
	last   time.Time
}

// used returns the amount that is used at a time.
func (o *usdOracle) used(now time.Time) *big.Rat {
	if o.bucket {
		drained := new(big.Rat).Mul(big.NewRat(o.limit.Count, o.limit.Period.Microseconds()), big.NewRat(now.Sub(o.last).Microseconds(), 1))
		o.level.Sub(o.level, drained)
		if o.level.Sign() < 0 {
			o.level.SetInt64(0)
		}
		o.last = now
		return new(big.Rat).Set(o.level)
	}
	begin := now.Add(-o.limit.Period)
	if o.window {
		begin = now.Add(-time.Duration(now.UnixMicro()%o.limit.Period.Microseconds()) * time.Microsecond)
	}
	sum := new(big.Int)
	for i, at := range o.at {
		if at.After(begin) || o.window && at.Equal(begin) {
			sum.Add(sum, big.NewInt(o.costs[i]))
		}
	}
	return new(big.Rat).SetInt(sum)
}

// add adds a cost that has passed.
func (o *usdOracle) add(now time.Time, micro int64) {
	if o.bucket {
		o.level.Add(o.level, big.NewRat(micro, 1))
		return
	}
	o.at, o.costs = append(o.at, now), append(o.costs, micro)
}

// With random limits in USD and random costs, the exact sum of the costs never exceeds the limit, and no cost is denied
// that would fit if each charge cost one unit more.
func TestMoneyNeverAbove(t *testing.T) {
	t.Parallel()
	s := seed.Of(t)
	rng := rand.New(rand.NewPCG(s, s))
	coarse := 0
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_log_exact", "sliding_window_log"} {
		for range 40 {
			text, plan := randomMoney(rng, algorithm)
			if plan == nil {
				continue
			}
			if plan.Limit.Money > 1 {
				coarse++
			}
			own := rand.New(rand.NewPCG(s, rng.Uint64()))
			virtually(t, fmt.Sprintf("%s of %s", algorithm, text), func(t *testing.T) { holdMoney(t, own, text, algorithm, plan) })
		}
	}
	if coarse < 30 {
		t.Errorf("seed %d: only %d limits have a coarser unit", s, coarse)
	}
}

// randomMoney returns a limit, and its plan if it has one.
func randomMoney(rng *rand.Rand, algorithm string) (string, *sluice.Plan) {
	amount := 1 + rng.Int64N(int64(1_000_000_000_000_000)>>rng.IntN(45))
	periods := []string{"second", "minute", "hour", "day", "7d", "30d", "365d", "90s"}
	text := sluice.Limit{Count: amount, Money: 1, Period: time.Second}.Amount(amount) + "/" + periods[rng.IntN(len(periods))]
	return text, LimitPlan(text, algorithm)
}

func holdMoney(t *testing.T, rng *rand.Rand, text, algorithm string, plan *sluice.Plan) {
	doc := parse(t, inUSD(fmt.Sprintf("limit: %s, algorithm: %s", text, algorithm)))
	e := NewEngine(memory.New(), doc)
	limit, _ := sluice.ParseLimit(text)
	exact := &usdOracle{limit: limit, bucket: algorithm == "token_bucket", window: algorithm == "fixed_window", level: new(big.Rat)}
	// The strict oracle charges a unit more each time, and its limit is rounded to whole units.
	strict := &usdOracle{limit: limit, bucket: exact.bucket, window: exact.window, level: new(big.Rat)}
	unit := plan.Limit.Money
	strict.limit.Count = plan.Limit.Value(plan.Limit.Count)
	clock := func() time.Time {
		if !exact.bucket { // only buckets see time in ticks
			return time.Now()
		}
		tick := doc.rules[0].own.limits[0].plan.Tick
		return time.UnixMicro(time.Now().UnixMicro() / tick * tick)
	}
	exact.last, strict.last = clock(), clock()
	passed, refused := 0, 0
	for range 150 {
		time.Sleep(time.Duration(rng.ExpFloat64()*float64(limit.Period)/40) / time.Microsecond * time.Microsecond)
		micro := 1 + rng.Int64N(max(1, limit.Count>>rng.IntN(12)))
		now := clock()
		used, most := exact.used(now), strict.used(now)
		if rng.IntN(3) == 0 { // about the remaining amount
			left := limit.Count - new(big.Int).Quo(used.Num(), used.Denom()).Int64()
			micro = max(1, left+rng.Int64N(4*unit+1)-2*unit)
		}
		if d := e.Decide(t.Context(), costing(micro)); d.Allowed {
			passed++
			exact.add(now, micro)
			strict.add(now, micro+unit)
			if used.Add(used, big.NewRat(micro, 1)); used.Cmp(big.NewRat(limit.Count, 1)) > 0 {
				t.Fatalf("%d micro-USD pass, and %s of %v are used", micro, used.FloatString(6), text)
			}
			continue
		}
		refused++
		if algorithm == "sliding_window_log" { // its times are rounded
			continue
		}
		if most.Add(most, big.NewRat(micro+unit, 1)); most.Cmp(big.NewRat(strict.limit.Count, 1)) <= 0 {
			t.Fatalf("%d micro-USD are denied, and no more than %s of %v would be used", micro, most.FloatString(6), plan)
		}
	}
	if passed == 0 || refused == 0 && limit.Count > 100 {
		t.Errorf("%d passed, %d were denied", passed, refused)
	}
}

// If the response reports the cost, a Settlement has the unit, the index of the limit, the owed units, and the reason
// for which a cost is unknown. For other costs, it has no unit.
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
