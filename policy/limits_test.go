package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/storetest"
)

// names returns what clients are told that the limits are called, and what is left of each.
func names(d Decision) string {
	var all []string
	for _, r := range d.Results {
		name := r.Name
		if name == "" {
			name = r.Rule
		}
		word := fmt.Sprint(r.Remaining)
		if !r.Allowed {
			word = "refused"
		}
		all = append(all, name+":"+word)
	}
	return strings.Join(all, " ")
}

// All limits of a rule are charged, or none is.
func TestLimitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, `
rules:
  - {name: api, key: [client_ip], limits: [2/second, 5/minute burst 3, 100/day]}
  - {name: one, key: [client_ip], limits: [90/day]}`)
		check := func(want string) {
			t.Helper()
			if got := names(e.Decide(t.Context(), get("/"))); got != want {
				t.Errorf("%v: %s, want %s", time.Now(), got, want)
			}
		}
		check("api-1s:1 api-1m:2 api-1d:99 one:89")
		check("api-1s:0 api-1m:1 api-1d:98 one:88")
		check("api-1s:refused api-1m:1 api-1d:98 one:88")
		time.Sleep(time.Second)
		check("api-1s:1 api-1m:0 api-1d:97 one:87")
		time.Sleep(time.Second)
		check("api-1s:2 api-1m:refused api-1d:97 one:87")
		d := e.Decide(t.Context(), get("/"))
		if d.RetryAfter != 10*time.Second || d.Results[0].Rule != "api" || d.Results[1].From != "rule" {
			t.Errorf("%+v", d)
		}
		time.Sleep(10 * time.Second)
		check("api-1s:1 api-1m:0 api-1d:96 one:86")
		if got := names(e.Decide(t.Context(), request("GET", "/", "192.0.2.2"))); got != "api-1s:1 api-1m:2 api-1d:99 one:89" {
			t.Errorf("another client: %s", got)
		}
	})
}

// A tier and an override take the place of all that the rule has.
func TestLimitsOfTiersAndOverrides(t *testing.T) {
	e := engine(t, `
tiers: {from: header:X-Plan}
rules:
  - name: api
    key: [header:X-User]
    limits: [2/second, 50/hour]
    tiers: {pro: [20/second, 500/hour, 5000/day], big: 100/second}
overrides:
  - {rule: api, key: {header:X-User: alice}, limits: [7/second, 70/day]}
  - {rule: api, key: {header:X-User: bob}, limit: 9/second}`)
	for headers, want := range map[string]string{
		"X-User: carl":                  "api-1s:1 api-1h:49 rule",
		"X-User: dora|X-Plan: pro":      "api-1s:19 api-1h:499 api-1d:4999 tier:pro",
		"X-User: emil|X-Plan: big":      "api:99 tier:big",
		"X-User: alice|X-Plan: pro":     "api-1s:6 api-1d:69 override",
		"X-User: bob|X-Plan: pro":       "api:8 override",
		"X-User: frida|X-Plan: unknown": "api-1s:1 api-1h:49 rule",
	} {
		d := e.Decide(t.Context(), get("/", strings.Split(headers, "|")...))
		got := names(d) + " " + d.Results[0].From
		if last := d.Results[len(d.Results)-1]; got != want || last.From != d.Results[0].From {
			t.Errorf("%s: %s, want %s", headers, got, want)
		}
	}
}

// A rule with several limits decides as rules of one limit do, each under a name of its own,
// and that over the store that counts in rational numbers.
func TestLimitsAsRules(t *testing.T) {
	for _, algorithm := range sluice.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one := fmt.Sprintf(`
rules:
  - {name: api, key: [client_ip], limits: [3/second, 14/7s, 90/minute], algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: all, limit: 150/minute}`, algorithm)
				many := fmt.Sprintf(`
rules:
  - {name: api, key: [client_ip], limit: 3/second, algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: api7, key: [client_ip], limit: 14/7s, algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: api60, key: [client_ip], limit: 90/minute, algorithm: %[1]s, cost: {header: C, max: 3}}
  - {name: all, limit: 150/minute}`, algorithm)
				a, b := engine(t, one), NewEngine(new(storetest.Model), parse(t, many))
				const seed = 7
				rng := rand.New(rand.NewPCG(seed, seed))
				refusedBy := make(map[string]int)
				for step := range 2500 {
					r := request("GET", "/", fmt.Sprintf("192.0.2.%d", rng.IntN(3)), fmt.Sprintf("C: %d", 1+rng.IntN(3)))
					x, y := a.Decide(t.Context(), r), b.Decide(t.Context(), r)
					if x.Allowed != y.Allowed || x.RetryAfter != y.RetryAfter || x.Delay != y.Delay || len(x.Results) != len(y.Results) {
						t.Fatalf("seed %d, step %d: %+v\nwant %+v", seed, step, x, y)
					}
					for i := range x.Results {
						if x.Results[i].Decision != y.Results[i].Decision || x.Results[i].Cost != y.Results[i].Cost {
							t.Fatalf("seed %d, step %d, result %d: %+v\nwant %+v", seed, step, i, x.Results[i], y.Results[i])
						}
						if !x.Results[i].Allowed {
							refusedBy[y.Results[i].Rule]++
						}
					}
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(150*time.Millisecond)))
				}
				if len(refusedBy) < 3 {
					t.Errorf("premise: only %v have refused", refusedBy)
				}
			})
		})
	}
}

func TestLimitsOfSubject(t *testing.T) {
	e := engine(t, `
tiers: {from: header:X-Plan}
rules:
  - {name: api, key: [header:X-User], limits: [3/day burst 3, 50/hour], tiers: {pro: [9/day, 50/hour burst 60]}}`)
	for range 2 {
		e.Decide(t.Context(), get("/", "X-User: alice"))
	}
	s := subject(t, e, "api", map[string]string{"header:X-User": "alice"})
	told := func() (all []string) {
		results, err := s.Peek(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			all = append(all, fmt.Sprintf("%s %s %d", r.From, r.Name, r.Remaining))
		}
		return all
	}
	expect := func(want ...string) {
		t.Helper()
		if got := told(); !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect("rule api-1d 1", "rule api-1h 48", "tier:pro api-1d 9")
	if _, err := s.Refund(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	expect("rule api-1d 2", "rule api-1h 49", "tier:pro api-1d 9")
	if err := s.Block(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if d := e.Decide(t.Context(), get("/", "X-User: alice")); d.Allowed || d.Blocked != "api" || len(d.Results) != 1 || d.Results[0].From != "block" {
		t.Errorf("blocked: %+v", d)
	}
	s.Unblock()
	if err := s.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("rule api-1d 3", "rule api-1h 50", "tier:pro api-1d 9")
}

func TestLimitsExplained(t *testing.T) {
	e := engine(t, `
rules:
  - {name: first, limits: [3/day, 50/hour]}
  - {name: other, match: /x, limit: 1/day}
  - {name: second, limits: [4/day, 60/hour]}`)
	trace := e.Explain(t.Context(), get("/"))
	var got []string
	for _, r := range trace.Rules {
		got = append(got, r.Rule, names(Decision{Results: r.Results}))
	}
	want := []string{"first", "first-1d:3 first-1h:50", "other", "", "second", "second-1d:4 second-1h:60"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Of several limits those are reported that change in kind, and not those that come or go.
func TestLimitsRestart(t *testing.T) {
	document := func(limits string) *Policy { return parse(t, "rules: [{name: r, limits: ["+limits+"]}]") }
	old := document("1/second, 10/hour")
	for limits, want := range map[string][]Restart{
		"1/second, 10/hour":         nil,
		"10/hour burst 3, 1/second": nil,
		"1/second":                  nil,
		"1/second, 10/hour, 20/day": nil,
		"1/second, 20/hour":         {{"r", "rule", "10/hour burst 10 (token_bucket)", "20/hour burst 20 (token_bucket)"}},
		"2/second, 20/hour": {{"r", "rule", "1/second burst 1 (token_bucket), 10/hour burst 10 (token_bucket)",
			"2/second burst 2 (token_bucket), 20/hour burst 20 (token_bucket)"}},
	} {
		if got := document(limits).Restarts(old); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", limits, got, want)
		}
	}
}

func TestLimitNames(t *testing.T) {
	for texts, want := range map[string]string{
		"10/second":                           "",
		"10/second,1000/hour,20000/day":       "r-1s,r-1h,r-1d",
		"10/second,90/31d,50000/month":        "r-1s,r-31d,r-month",
		"1/90s,2/1h30m,3/250ms,4/7d,5/36h":    "r-1m30s,r-1h30m,r-250ms,r-7d,r-36h",
		"1/second,2/1s,3/1000ms,4/250us,5/2h": "r-1s,r-1s-2,r-1s-3,r-250us,r-2h",
		"1/minute,2/1h0m1s,3/10m,4/10h,5/20s": "r-1m,r-1h0m1s,r-10m,r-10h,r-20s",
	} {
		var plans []*sluice.Plan
		for text := range strings.SplitSeq(texts, ",") {
			l, err := sluice.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := sluice.NewPlan(l)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, plan)
		}
		if got := strings.Join(LimitNames("r", plans), ","); got != want {
			t.Errorf("%s: %s, want %s", texts, got, want)
		}
	}
}

// Every kind of limits has its form in JSON, and what is neither is an error.
func TestLimitsJSON(t *testing.T) {
	for text, want := range map[string]Limits{`"1/day"`: {"1/day"}, `["1/day","2/hour"]`: {"1/day", "2/hour"}} {
		var l Limits
		if err := json.Unmarshal([]byte(text), &l); err != nil || !reflect.DeepEqual(l, want) {
			t.Errorf("%s: %v, %v", text, l, err)
		}
		if back, err := json.Marshal(l); err != nil || string(back) != text {
			t.Errorf("%s became %s, %v", text, back, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"a": 1}`), new(Limits)); err == nil || !strings.Contains(err.Error(), "list of such texts") {
		t.Errorf("an object: %v", err)
	}
}

// A document that a program makes has what a file cannot.
func TestLimitsOfDocuments(t *testing.T) {
	if _, err := Compile(Document{Tiers: Tiers{From: "method"}, Rules: []Rule{{Name: "a", Limit: "1/day", Tiers: map[string]Limits{"x": {}}}}}); err == nil ||
		!strings.Contains(err.Error(), `the tier "x" has no limit`) {
		t.Errorf("a tier without limits: %v", err)
	}
}

func TestLimitsAllocations(t *testing.T) {
	e := NewEngine(memory.New(), parse(t, "rules: [{name: api, key: [client_ip], limits: [1/hour, 10/day]}]"))
	if n, d := allocations(t, e, get("/")); n > 0 || d.Allowed || len(d.Results) != 2 {
		t.Errorf("a decision by two limits allocates %v times: %+v", n, d)
	}
}

// allocations returns how many a decision makes that is used again, and the decision. The pool is
// left out, since the race detector makes it forget.
func allocations(t *testing.T, e *Engine, r *Request) (float64, Decision) {
	var d Decision
	s, ctx := new(scratch), t.Context()
	n := testing.AllocsPerRun(100, func() {
		d.reset()
		s.reset(e.Policy(), r)
		e.decide(ctx, s, &d)
	})
	return n, d
}
