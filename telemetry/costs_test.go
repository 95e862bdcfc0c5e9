package telemetry_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// tokens is a rule that reserves 100 tokens.
func tokens(limit string) policy.Rule {
	return policy.Rule{Name: "tokens", Key: []string{"header:X-Team"}, Limits: []string{limit, "100000000/day"},
		Cost: policy.Cost{Tokens: "total", Estimate: policy.Estimate{Units: 100}}}
}

// spend sends a request of a team, and settles it with a number of tokens.
func spend(t *testing.T, e *policy.Engine, team string, n int64) {
	t.Helper()
	settle(t, e, team, policy.Outcome{Status: 200, Numbers: map[string]int64{"usage.completion_tokens": n}})
}

func settle(t *testing.T, e *policy.Engine, team string, o policy.Outcome) {
	t.Helper()
	d := e.Decide(t.Context(), &policy.Request{Path: "/", Header: http.Header{"X-Team": {team}}})
	if !d.Allowed {
		t.Fatalf("%s is denied", team)
	}
	e.Settle(t.Context(), d, o)
}

// The cost of a response is counted once, whatever the number of limits. A view adds up all instances, including
// stopped ones. Only rules that take their cost from responses have a budget.
func TestCosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		rules := []policy.Rule{tokens("1000/hour"), {Name: "plain", Limit: "1000/hour"}, {Name: "bytes", Limit: "1000/hour", Cost: policy.Cost{ResponseBytes: 10}}}
		a, b := join(t, "a", board, rules...), joinBy(t, board, policy.NewEngine(memory.New(), compile(t, rules...)), telemetry.Config{Instance: "b", Subjects: true}, nil)
		spend(t, a.engine, "red", 90)
		spend(t, b.engine, "red", 40)
		time.Sleep(10 * time.Minute)
		spend(t, b.engine, "blue", 3000)
		settle(t, a.engine, "green", policy.Outcome{Status: 200})
		a.stop()
		time.Sleep(20 * time.Second)
		v := b.fleet.View()
		if v.Rule("plain").Budget != nil || v.Rule("bytes").Budget != nil {
			t.Error("rules whose responses do not report their cost have a budget")
		}
		got := v.Rule("tokens").Budget
		if got == nil || got.Unit != policy.Tokens || len(got.Steps) != telemetry.CostSteps {
			t.Fatalf("the budget is %+v", got)
		}
		want := telemetry.Costs{Responses: 4, Reserved: 400, Settled: 90 + 40 + 3000 + 100, High: 1, Low: 1, Close: 1, Indebted: 1}
		want.Unread[5] = 1
		if day := got.Last(telemetry.CostSteps); day != want || telemetry.UnreadReasons[5] != "no_body" {
			t.Errorf("a day has\n%+v, want\n%+v", day, want)
		}
		if lately := got.Last(2); lately.Settled != 3100 || lately.Responses != 2 {
			t.Errorf("the last minutes have %+v", lately)
		}
		spenders := got.Spenders[telemetry.Day]
		if len(spenders.Items) != 2 || spenders.Items[0].Shown != "blue" || spenders.Items[0].Count != 3000 || spenders.Items[1].Count != 40 || spenders.Error != 0 || spenders.Total != 3040 {
			t.Errorf("the spenders of the instance with subjects are %+v", spenders)
		}
		if key, found := b.fleet.Find(spenders.Items[0].ID); key != "tokens/blue" || !found {
			t.Errorf("the subject is found as %q", key)
		}
	})
}

// Costs are forgotten after a day.
func TestCostsOfADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policy.NewEngine(memory.New(), compile(t, tokens("1000/hour")))
		f := &telemetry.Fleet{Recorder: telemetry.Watch(e, telemetry.Config{})}
		settled := func() uint64 {
			day := f.View().Rule("tokens").Budget.Last(telemetry.CostSteps)
			return day.Settled
		}
		for i, want := range []uint64{90, 90 + 91, 91 + 92} {
			spend(t, e, "red", int64(90+i))
			if got := settled(); got != want {
				t.Errorf("after %d half days, %d tokens are counted, want %d", i, got, want)
			}
			time.Sleep(12*time.Hour + 6*time.Minute)
		}
	})
}

// From the start, the totals include each rule that takes its cost from responses. A total starts again at 0 when the
// unit of the rule changes.
func TestCostTotals(t *testing.T) {
	t.Parallel()
	e := policy.NewEngine(memory.New(), compile(t, policy.Rule{Name: "plain", Limit: "1000/hour"}, tokens("1000/hour")))
	r := telemetry.Watch(e, telemetry.Config{})
	if all := r.Costs(); len(all) != 1 || all[0].Rule != "tokens" || all[0].Unit != policy.Tokens || all[0].Responses != 0 {
		t.Errorf("before the first request: %+v", all)
	}
	spend(t, e, "red", 90)
	if all := r.Costs(); all[0].Settled != 90 || all[0].Reserved != 100 {
		t.Errorf("after one request: %+v", all)
	}
	changed := tokens("1000/hour")
	changed.Cost = policy.Cost{ResponseJSON: map[string]policy.Decimal{"images": "1"}, Estimate: policy.Estimate{Units: 2}}
	e.Swap(compile(t, changed))
	if all := r.Costs(); all[0].Settled != 0 || all[0].Unit != policy.Numbers {
		t.Errorf("in another unit: %+v", all)
	}
	settle(t, e, "red", policy.Outcome{Status: 200, Numbers: map[string]int64{"images": 3}})
	if all := r.Costs(); all[0].Settled != 3 || all[0].Reserved != 2 {
		t.Errorf("after one request in another unit: %+v", all)
	}
	v := (&telemetry.Fleet{Recorder: r}).View()
	if day := v.Rule("tokens").Budget.Last(telemetry.CostSteps); day.Settled != 3 {
		t.Errorf("the view has %+v", day)
	}
}

// Costs are counted by model: the first models with a response by name, and all others together, with 20 entries at
// most.
func TestCostsByModel(t *testing.T) {
	t.Parallel()
	e := policy.NewEngine(memory.New(), compile(t, policy.Rule{Name: "tokens", Limit: "1000000/day", Cost: policy.Cost{Tokens: "total"}}))
	r := telemetry.Watch(e, telemetry.Config{})
	ask := func(model string, o policy.Outcome) {
		d := e.Decide(t.Context(), &policy.Request{Path: "/", Header: http.Header{}, Body: func(int64) ([]byte, error) {
			return []byte(`{"model":"` + model + `"}`), nil
		}})
		if !d.Allowed {
			t.Fatal("denied")
		}
		e.Settle(t.Context(), d, o)
	}
	of := func(n int64) policy.Outcome {
		return policy.Outcome{Status: 200, Numbers: map[string]int64{"usage.completion_tokens": n}}
	}
	ask("a", of(3))
	ask("unanswered", policy.Outcome{Status: 404})
	ask(strings.Repeat("x", 65), of(7))
	ask("caf\u00e9", of(11))
	for i := range 30 {
		ask(fmt.Sprint("m", i), of(100))
	}
	ask("a", of(4))
	all := r.Costs()[0]
	named := 0
	for _, n := range all.Models {
		if n == 100 {
			named++
		}
	}
	if all.Models["a"] != 7 || named != 18 || all.Models[telemetry.OtherModels] != 2008+7+11+12*100 || len(all.Models) != 20 {
		t.Errorf("the models have %v", all.Models)
	}
}

// However many subjects spend, the list of spenders is bounded. It contains the subjects that spent most, each with a
// correct bound on the error of its count.
func TestSpenders(t *testing.T) {
	t.Parallel()
	e := policy.NewEngine(memory.New(), compile(t, tokens("100000000/hour")))
	f := &telemetry.Fleet{Recorder: telemetry.Watch(e, telemetry.Config{Subjects: true})}
	random := rand.New(rand.NewPCG(7, 7))
	spent, total := map[string]uint64{}, uint64(0)
	add := func(team string, n int64) {
		spend(t, e, team, n)
		spent["tokens/"+team] += uint64(n)
		total += uint64(n)
	}
	for range 3000 {
		add(fmt.Sprint("small-", random.IntN(2000)), 1+random.Int64N(50))
		add(fmt.Sprint("large-", random.IntN(5)), 1+random.Int64N(5000))
	}
	top := f.View().Rule("tokens").Budget.Spenders[telemetry.Hour]
	if top.Total != total || len(top.Items) == 0 || len(top.Items) > 100 {
		t.Fatalf("%d subjects spent %d, want a total of %d", len(top.Items), top.Total, total)
	}
	for i, s := range top.Items {
		if true := spent[s.Key]; s.Count < true || s.Count-s.Error > true {
			t.Errorf("%s spent %d, the list has %d with an error of %d", s.Key, true, s.Count, s.Error)
		}
		if i < 5 && s.Key[:len("tokens/large")] != "tokens/large" {
			t.Errorf("%s is spender number %d", s.Key, i)
		}
	}
}
