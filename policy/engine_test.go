package policy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// While policies are swapped, every request is decided by one of them, and the rule that both have keeps its count.
func TestSwapWhileDeciding(t *testing.T) {
	t.Parallel()
	a := parse(t, `
trusted_proxies: [10.0.0.0/8]
rules: [{name: shared, limit: 500/day}, {name: a, limit: 100000/day}]`)
	b := parse(t, `
rules: [{name: b, match: /, limit: 100000/day}, {name: shared, limit: 500/day}, {name: b2, key: [client_ip], limit: 100000/day}]`)
	e := NewEngine(memory.New(), a)
	var passed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 250 {
				d := e.Decide(t.Context(), get("/"))
				if d.Allowed {
					passed.Add(1)
				}
				switch {
				case len(d.Results) == 2 && d.Results[0].Rule == "shared" && d.Results[1].Rule == "a":
				case len(d.Results) == 3 && d.Results[0].Rule == "b" && d.Results[2].Rule == "b2":
				default:
					t.Errorf("decided by neither policy: %s", summary(d))
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 400 {
			e.Swap([]*Policy{b, a}[i%2])
			if n := len(e.TrustedProxies()); n > 1 {
				t.Errorf("%d trusted proxies", n)
			}
		}
	})
	wg.Wait()
	if passed.Load() != 500 {
		t.Errorf("%d of 2000 passed, want 500", passed.Load())
	}
	if e.Swap(b); e.Policy() != b {
		t.Error("Policy does not return the policy of Swap")
	}
	for i, p := range []*Policy{a, b, a} { // each policy still has its own rules
		e.Swap(p)
		if d := e.Decide(t.Context(), get("/")); d.Results[0].Rule != []string{"shared", "b", "shared"}[i] {
			t.Errorf("decision %d: %s", i, summary(d))
		}
	}
}

// A decision allocates only its results, and nothing if it is reused, observed or not. The test does not use the pool,
// because it drops values under the race detector.
func TestDecideAllocations(t *testing.T) {
	withPlan := get("/")
	withPlan.Attributes = map[string]string{"plan": "pro"}
	const parts = `
rules:
  - {name: a, match: "POST /a/{id}/b", key: [client_ip, "header:X-API-Key", method, route], limit: 100000000/second}
  - {name: b, key: [api_key, "cookie:sid", host, "const:x"], limit: 100000000/second}
ignore_case: true`
	allParts := request("POST", "/a//%2e/%62b%20c/b", "2001:db8::1", "X-API-Key: abc", "Cookie: a=b; sid=1")
	for name, tt := range map[string]struct {
		p       *Policy
		r       *Request
		results int
	}{
		"three rules": {parse(t, benchDocument(97)), benchRequest(), 3},
		"two limits":  {parse(t, "rules: [{name: api, key: [client_ip], limits: [1/hour, 10/day]}]"), get("/"), 2},
		"parts":       {parse(t, parts), allParts, 2},
		"attributes":  {parse(t, "rules: [{name: a, attributes: {plan: trial}, limit: 1/day}, {name: b, limit: 1/day}]"), withPlan, 1},
	} {
		e, ctx, d := NewEngine(memory.New(), tt.p), t.Context(), Decision{}
		w := e.newWork()
		decide := func() {
			w.begin(e, tt.r, &d)
			if e.decide(ctx, w, &d); len(d.Results) != tt.results {
				t.Fatalf("not what is to be measured: %+v", d)
			}
		}
		decide()
		if n := testing.AllocsPerRun(1000, func() { d = Decision{}; decide() }); n > 1 {
			t.Errorf("%s: a decision allocates %v times, want once", name, n)
		}
		seen := 0
		for _, observe := range []func(context.Context, *Observation){nil, func(_ context.Context, o *Observation) { seen += len(o.Key(0)) }} {
			if observe != nil {
				e.Observe(observe)
			}
			if n := testing.AllocsPerRun(1000, func() { d.reset(); decide(); e.observe(ctx, w, &d, e.took(e.began())) }); n > 0 {
				t.Errorf("%s: a reused decision allocates %v times, observed %v", name, n, observe != nil)
			}
		}
		if seen == 0 {
			t.Errorf("%s: nothing was observed", name)
		}
	}
}

// Observers get each decision of every kind of call, and no explanations. An observation has a time unless the engine
// is untimed.
func TestObserve(t *testing.T) {
	t.Parallel()
	for _, untimed := range []bool{false, true} {
		e := engine(t, `
trusted_proxies: [192.0.2.1]
rules:
  - {name: open, match: /open, exempt: true}
  - {name: each, key: [client_ip, "header:X-User"], limit: 1/day, missing: refuse}`)
		if untimed {
			e.Untimed()
		}
		var all []string
		type mine struct{}
		ctx := context.WithValue(t.Context(), mine{}, true)
		e.Observe(func(c context.Context, o *Observation) {
			if c != ctx || o.Began.IsZero() != untimed || untimed && o.Took != 0 {
				t.Errorf("untimed %v: another context, or began at %v, took %v", untimed, o.Began, o.Took)
			}
			text := fmt.Sprint(o.Request.Path, " ", o.Client(), " ", summary(o.Decision))
			for i := range o.Decision.Results {
				text += " " + o.Key(i)
			}
			all = append(all, text)
		})
		known := get("/b", "X-User: u", "X-Forwarded-For: 198.51.100.7")
		for _, r := range []*Request{get("/open"), get("/a"), known} {
			var d Decision
			e.Decide(ctx, r)
			e.DecideInto(ctx, r, &d)
			e.Explain(ctx, r)
		}
		e.DecideEach(ctx, []*Request{known, get("/open")}, make([]Decision, 2))
		want := []string{
			"/open 192.0.2.1 exempt", "/open 192.0.2.1 exempt", "/a 192.0.2.1 lacks=header:X-User", "/a 192.0.2.1 lacks=header:X-User",
			"/b 198.51.100.7 allowed each:0 each/198.51.100.7/u", "/b 198.51.100.7 refused each:refused each/198.51.100.7/u",
			"/b 198.51.100.7 refused each:refused each/198.51.100.7/u", "/open 192.0.2.1 exempt",
		}
		if !slices.Equal(all, want) {
			t.Errorf("observed %q, want %q", all, want)
		}
	}
}

// An engine needs a store, but no policy.
func TestNewEngine(t *testing.T) {
	t.Parallel()
	pass(t, NewEngine(memory.New(), nil), get("/"))
	defer func() {
		if s, _ := recover().(string); !strings.Contains(s, "needs a store: memory.New()") {
			t.Errorf("without a store: %q", s)
		}
	}()
	NewEngine(nil, nil)
}

func TestHostileRequests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../policyfile/testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse("everything.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(memory.New(), p)
	bodies := []func(int64) ([]byte, error){
		nil, func(int64) ([]byte, error) { return nil, nil }, func(int64) ([]byte, error) { return nil, io.ErrUnexpectedEOF },
		func(int64) ([]byte, error) { return []byte(`{"user.name":"\ud800"}`), nil },
	}
	for _, r := range []*Request{
		{}, {Path: "*", Method: "OPTIONS"}, {Path: strings.Repeat("/a", 1<<16)}, {Path: strings.Repeat("/%2e%2e;", 1<<16)},
		{Path: "/\x00\xff%zz", Method: "\xff", Host: "\xff:\x00"}, {Host: strings.Repeat(".", 1<<16)},
		{Path: "/api/x", RawQuery: strings.Repeat("user=%zz&", 1<<15), Host: "x.example.com"},
		{Path: "/jobs", Method: "POST", Header: http.Header{"X-Api-Key": {strings.Repeat("\xff", 1<<20)}, "Cookie": {strings.Repeat("session=1;", 1<<12)}}},
	} {
		for _, body := range bodies {
			r.Body = body
			first := e.Decide(t.Context(), r)
			if first.Degraded || first.Unavailable || first.Err != nil {
				t.Errorf("%.40q: %+v", r.Path, first)
			}
			if x := e.Explain(t.Context(), r).Decision; len(x.Results) != len(first.Results) || x.Missing != first.Missing {
				t.Errorf("%.40q: explained as %+v", r.Path, x)
			}
		}
	}
}
