package policy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

func tenantOf(name string) *policy.Request {
	return &policy.Request{Host: "example.com", Header: http.Header{"X-Tenant": {name}}}
}

// keysStore notes the keys that it is asked for.
type keysStore struct {
	sluice.Store
	keys []string
}

func (s *keysStore) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.keys = s.keys[:0]
	for _, c := range charges {
		s.keys = append(s.keys, c.Key)
	}
	return s.Store.Take(ctx, charges, receipts)
}

// The keys of a limit and of the tenants who share it are in one slot of a cluster.
func TestShareKeys(t *testing.T) {
	for _, test := range []struct {
		key, together []string
		want          []string
	}{
		{nil, nil, []string{"api/", "{api/}api/acme"}},
		{[]string{"host"}, nil, []string{"api/example.com", "{api/example.com}api/example.com/acme"}},
		{[]string{"host", "method"}, []string{"host"}, []string{"{example.com}api/example.com/GET", "{example.com}api/example.com/GET/acme"}},
	} {
		doc := policy.Document{Rules: []policy.Rule{{
			Name: "api", Key: test.key, Together: test.together, Share: policy.Share{Of: "10/second", By: []string{"header:X-Tenant"}},
		}}}
		p, err := policy.Compile(doc)
		if err != nil {
			t.Fatal(err)
		}
		store := &keysStore{Store: memory.New()}
		e := policy.NewEngine(store, p)
		seen := ""
		e.Observe(func(_ context.Context, o *policy.Observation) { seen = o.Key(0) })
		d := e.Decide(t.Context(), tenantOf("acme"))
		if !slices.Equal(store.keys, test.want) || len(d.Results) != 1 || d.Results[0].Remaining != 9 || d.Results[0].Plan.Capacity != 10 {
			t.Errorf("%v: keys %q, %+v", test.key, store.keys, d.Results)
		}
		if trace := e.Explain(t.Context(), tenantOf("acme")); seen != test.want[1] || trace.Rules[0].Key != seen {
			t.Errorf("the subject is %q, and explained as %q", seen, trace.Rules[0].Key)
		}
		subject, err := e.SubjectOf(seen)
		if err != nil {
			t.Fatal(err)
		}
		results, err := subject.Peek(t.Context())
		if err != nil || len(results) != 1 || results[0].Remaining != 9 || subject.Values()["header:X-Tenant"] != "acme" {
			t.Errorf("%v, %v of %v", results, err, subject.Values())
		}
		if results, err = subject.Refund(t.Context(), 1); err != nil || results[0].Remaining != 10 {
			t.Errorf("after a refund %v, %v", results, err)
		}
	}
}

// Of a hundred parts of a second's limit, one has its turn; reset, it has the next at once.
func TestShareReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFleet(t, 1, "100/second")[0]
		crowd := []*caller{{name: "a", rate: 300}, {name: "b", rate: 300}, {name: "c", rate: 300}}
		fleet{e}.serve(t, crowd, 3*time.Second)
		refused := e.Decide(t.Context(), tenantOf("a"))
		if refused.Allowed || refused.RetryAfter <= 0 || refused.RetryAfter > time.Second/33*2 {
			t.Fatalf("%+v", refused)
		}
		subject, err := e.Subject("api", map[string]string{"header:X-Tenant": "a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := subject.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := e.Decide(t.Context(), tenantOf("a")); !d.Allowed {
			t.Errorf("after a reset: %+v", d)
		}
		if d := e.Decide(t.Context(), tenantOf("b")); d.Allowed {
			t.Errorf("of another one: %+v", d)
		}
	})
}

// What an explanation says of a tenant's part is what it gets: alone, among others for whom there is
// enough, and among those for whom there is not.
func TestSharePresent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, "100/second")
		says := func(name, tier string) string {
			req := tenantOf(name)
			req.Header.Set("X-Plan", tier)
			return f[0].Explain(t.Context(), req).Rules[0].Share
		}
		if got, want := says("a", ""), "weight 1, and nobody else is active: all of 100/second"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		few := []*caller{{name: "a", rate: 10}, {name: "b", tier: "pro", rate: 10}}
		f.serve(t, few, 3*time.Second)
		if got, want := says("a", ""), "weight 1 of 4 that are active: what it asks for, since 100/second is enough for all, and at least 25/second"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got, want := says("new", "big"), "weight 10 of 14 that are active: what it asks for, since 100/second is enough for all, and at least 71.4/second"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		many := []*caller{{name: "a", rate: 300}, {name: "b", tier: "pro", rate: 300}}
		f.serve(t, many, 5*time.Second)
		for _, c := range many {
			var weight, of int
			var rate float64
			got := says(c.name, c.tier)
			if _, err := fmt.Sscanf(got, "weight %d of %d that are active, which ask for more than 100/second: %f/second at present", &weight, &of, &rate); err != nil {
				t.Fatalf("%s: %q: %v", c.name, got, err)
			}
			if had := c.got(3, 5); of != 4 || rate < 0.9*had || rate > 1.1*had {
				t.Errorf("%s: %q, and it has got %v a second", c.name, got, had)
			}
		}
	})
}

// What somebody has left passes at once, and a wait is long enough, if nobody else asks meanwhile.
func TestShareToldIsTrue(t *testing.T) {
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	for _, test := range []struct {
		of   string
		slow int64 // how many times as long an epoch is
	}{{"100/second", 1}, {"100/second burst 10", 1}, {"60/minute", 32}} {
		of, slow := test.of, test.slow
		synctest.Test(t, func(t *testing.T) {
			e := newFleet(t, 1, of)[0]
			names, promised, waited := []string{"a", "b", "c", "d"}, 0, 0
			for i := range 20_000 {
				req := tenantOf(names[r.IntN(len(names))])
				req.Header.Set("X-Plan", []string{"free", "pro"}[len(req.Header.Get("X-Tenant"))%2])
				switch d := e.Decide(t.Context(), req); {
				case r.IntN(100) > 0:
				case d.Allowed:
					for n := range d.Results[0].Remaining {
						if promised++; !e.Decide(t.Context(), req).Allowed {
							t.Fatalf("%s: of %d that remain, %d passed: %+v", of, d.Results[0].Remaining, n, d.Results[0])
						}
					}
				case (time.Now().UnixMicro()+d.RetryAfter.Microseconds())%(slow*250_000) > d.RetryAfter.Microseconds(): // else shares are divided anew
					waited++
					time.Sleep(d.RetryAfter)
					if again := e.Decide(t.Context(), req); !again.Allowed {
						t.Fatalf("%s: after %v: %+v", of, d.RetryAfter, again)
					}
				}
				time.Sleep(time.Duration(r.Int64N([]int64{5_000, 80_000}[i/500%2]*slow)) * time.Microsecond)
			}
			if promised < 20 || waited < 20 {
				t.Errorf("%s: %d were promised, and %d waited for", of, promised, waited)
			}
		})
	}
}

// An ID is that of a tenant's request, whatever its time costs by now.
func TestShareOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFleet(t, 1, "100/second")[0]
		ask := func(name string) policy.Decision {
			req := tenantOf(name)
			req.ID = "42"
			return e.Decide(t.Context(), req)
		}
		for _, name := range []string{"a", "b"} {
			if d := ask(name); !d.Allowed || d.Repeated {
				t.Fatalf("%s at first: %+v", name, d)
			}
		}
		fleet{e}.serve(t, []*caller{{name: "a", rate: 300}, {name: "b", rate: 300}}, 2*time.Second)
		for _, name := range []string{"a", "b"} {
			if d := ask(name); !d.Allowed || !d.Repeated {
				t.Errorf("%s again: %+v", name, d)
			}
		}
	})
}

func TestShareTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFleet(t, 1, "100/second burst 20")[0]
		ask := func(reqs ...*policy.Request) ([]policy.Decision, bool) {
			ds := make([]policy.Decision, len(reqs))
			return ds, e.DecideTogether(t.Context(), reqs, ds)
		}
		many := tenantOf("a")
		many.Cost = 8
		if ds, ok := ask(many, many, tenantOf("b")); !ok || ds[2].Results[0].Remaining != 3 {
			t.Fatalf("%v, %+v", ok, ds)
		}
		if ds, ok := ask(tenantOf("b"), many); ok || !ds[0].Allowed || ds[1].Allowed {
			t.Fatalf("%v, %+v", ok, ds)
		}
		back := tenantOf("a")
		back.Cost, back.Mode = 8, policy.GiveBack
		if d := e.Decide(t.Context(), back); !d.Allowed || d.Results[0].Remaining != 11 {
			t.Fatalf("given back: %+v", d)
		}
		if ds, ok := ask(tenantOf("b"), many); !ok || ds[1].Results[0].Remaining != 2 {
			t.Fatalf("%v, %+v", ok, ds)
		}
		peek := tenantOf("c")
		peek.Mode = policy.Peek
		if d := e.Decide(t.Context(), peek); !d.Allowed || d.Results[0].Remaining != 2 {
			t.Fatalf("peeked: %+v", d)
		}
	})
}

// A shadow counts as if it refused, and refuses nobody.
func TestShareShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := sharedBy("100/second")
		doc.Rules[0].Shadow = true
		p, err := policy.Compile(doc)
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(memory.New(), p)
		refused := 0
		e.Observe(func(_ context.Context, o *policy.Observation) {
			if !o.Decision.Results[0].Allowed {
				refused++
			}
		})
		total := fleet{e}.serve(t, []*caller{{name: "a", rate: 1000}, {name: "b", rate: 1000}}, 4*time.Second)
		if mean(total) != 2000 || refused < 7300 || refused > 7600 {
			t.Errorf("%v passed, and %d would have been refused", total, refused)
		}
	})
}

// Shares go by the time of requests, such as those of a log.
func TestShareByRequestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFleet(t, 1, "100/second")[0]
		then := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
		passed := map[string]int{}
		for i := range 4000 { // four seconds
			for n := range 10 {
				name := "flood"
				if n == 0 && i%25 == 0 {
					name = "steady"
				}
				req := tenantOf(name)
				req.Time = then
				if e.Decide(t.Context(), req).Allowed && i >= 2000 {
					passed[name]++
				}
			}
			time.Sleep(time.Millisecond)
			then = then.Add(time.Millisecond)
		}
		if s, f := passed["steady"], passed["flood"]; s < 79 || s+f < 195 {
			t.Errorf("%v passed in two seconds, of whom the one asks for 80", passed)
		}
	})
}
