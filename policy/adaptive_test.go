package policy_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

func adaptiveEngine(t *testing.T, rules ...policy.Rule) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(policy.Document{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}

// capacity is the rule with an automatic limit that is always 1.
func capacity() policy.Rule {
	return policy.Rule{Name: "capacity", InFlight: policy.InFlight{Auto: true, Least: 1, Most: 1}}
}

func timed(path string) *policy.Request {
	return &policy.Request{Method: "GET", Path: path, Host: "example.com", Ends: true, Timed: true}
}

func underWay(e *policy.Engine) (n int64) {
	for _, l := range e.Loads() {
		n += l.InFlight
	}
	return n
}

// A request that the automatic limit denies uses up no rate limit, and a request that a rate limit denies takes no
// permit.
func TestAdaptiveAllOrNone(t *testing.T) {
	t.Parallel()
	e := adaptiveEngine(t, capacity(), policy.Rule{Name: "rate", Limits: []string{"2/hour"}})
	ctx := context.Background()
	first := e.Decide(ctx, timed("/"))
	for range 5 {
		if d := e.Decide(ctx, timed("/")); d.Allowed || d.Overloaded != "capacity" || len(d.Results) > 0 || d.RetryAfter < time.Second/2 || d.RetryAfter > 4*time.Second {
			t.Fatalf("%+v", d)
		}
	}
	e.Release(ctx, first)
	e.Release(ctx, first) // a second release changes nothing
	second := e.Decide(ctx, timed("/"))
	if !second.Allowed || second.Results[0].Remaining != 0 || underWay(e) != 1 {
		t.Fatalf("%+v, %d under way", second, underWay(e))
	}
	e.Release(ctx, second)
	if d := e.Decide(ctx, timed("/")); d.Allowed || d.Overloaded != "" || d.Results[0].Allowed || underWay(e) != 0 {
		t.Errorf("%+v, %d under way", d, underWay(e))
	}
}

// A request has the lowest class of all rules that apply.
func TestClasses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rules := []policy.Rule{
		{Name: "pay", Match: []string{"/pay"}, Class: "critical"},
		{Name: "capacity", InFlight: policy.InFlight{Auto: true, Least: 1, Most: 4}},
		{Name: "exports", Match: []string{"/export"}, Class: "sheddable", Limits: []string{"100/hour"}},
		{Name: "tests", Headers: map[string]string{"X-Test": "*"}, Class: "sheddable"},
	}
	for _, tt := range []struct {
		path, test string
		passes     int
		class      string
	}{
		{"/pay", "", 8, "critical"}, {"/", "", 4, "normal"}, {"/export", "", 2, "sheddable"}, {"/pay", "1", 2, "sheddable"}, {"/", "1", 2, "sheddable"},
	} {
		e := adaptiveEngine(t, rules...)
		passed := 0
		for range 10 {
			r := timed(tt.path)
			if tt.test != "" {
				r.Header = map[string][]string{"X-Test": {tt.test}}
			}
			d := e.Decide(ctx, r)
			if d.Allowed {
				passed++
			}
			if len(d.Loads) != 1 || d.Loads[0].Class != tt.class || d.Loads[0].Allowed != d.Allowed {
				t.Fatalf("%s: %+v", tt.path, d.Loads)
			}
		}
		if passed != tt.passes {
			t.Errorf("%s, X-Test %q: %d of 10 passed at once, want %d", tt.path, tt.test, passed, tt.passes)
		}
	}
}

func TestAdaptiveShadow(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	watching := capacity()
	watching.Shadow = true
	e := adaptiveEngine(t, watching)
	var all []policy.Decision
	for i := range 4 {
		d := e.Decide(ctx, timed("/"))
		if !d.Allowed || !d.Loads[0].Shadow || d.Loads[0].Allowed != (i == 0) {
			t.Fatalf("request %d: %+v", i, d)
		}
		all = append(all, d)
	}
	if underWay(e) != 4 {
		t.Errorf("%d are under way", underWay(e))
	}
	for _, d := range all {
		e.Release(ctx, d)
	}
	if underWay(e) != 0 {
		t.Errorf("%d are under way", underWay(e))
	}
}

// Requests that no integration times, peeks, and requests of DecideTogether are not counted. Requests of DecideEach
// are.
func TestAdaptiveLeftOut(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := adaptiveEngine(t, capacity())
	held := e.Decide(ctx, timed("/"))
	untimed, peek := timed("/"), timed("/")
	untimed.Timed, peek.Mode = false, policy.Peek
	for _, r := range []*policy.Request{untimed, peek} {
		if d := e.Decide(ctx, r); !d.Allowed || len(d.Loads) > 0 {
			t.Errorf("%+v", d)
		}
	}
	ds := make([]policy.Decision, 2)
	if !e.DecideTogether(ctx, []*policy.Request{timed("/"), timed("/")}, ds) || underWay(e) != 1 {
		t.Errorf("parts: %+v, %d under way", ds, underWay(e))
	}
	e.Release(ctx, held)
	e.DecideEach(ctx, []*policy.Request{timed("/"), timed("/")}, ds)
	if !ds[0].Allowed || ds[1].Overloaded != "capacity" {
		t.Errorf("a list: %+v", ds)
	}
}

// Each key has a separate limit, up to a maximum number of keys. All other keys share one limit.
func TestAdaptiveKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	hosts := capacity()
	hosts.Key = []string{"host"}
	e := adaptiveEngine(t, hosts)
	const most = 1000
	passed := 0
	all := make([]policy.Decision, most+10)
	for i := range all {
		r := timed("/")
		r.Host = fmt.Sprintf("h%d.example.com", i)
		if all[i] = e.Decide(ctx, r); all[i].Allowed {
			passed++
		}
	}
	if passed != most+1 || len(e.Loads()) != most+1 {
		t.Errorf("%d passed, %d limits", passed, len(e.Loads()))
	}
	for i, d := range all {
		if want := fmt.Sprintf("capacity/h%d.example.com", i); d.Loads[0].Key != want {
			t.Fatalf("after later decisions: %s, want %s", d.Loads[0].Key, want)
		}
	}
}

// Permits outlive a change of policy, and are returned if an observer panics.
func TestAdaptivePermits(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := adaptiveEngine(t, capacity())
	explode := false
	e.Observe(func(context.Context, *policy.Observation) {
		if explode {
			panic("an observer")
		}
	})
	d := e.Decide(ctx, timed("/"))
	wider := capacity()
	wider.InFlight.Most, wider.InFlight.Least = 2, 2
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{wider}})
	if err != nil {
		t.Fatal(err)
	}
	e.Swap(p)
	explode = true
	func() {
		defer func() { _ = recover() }()
		e.Decide(ctx, timed("/"))
	}()
	explode = false
	if underWay(e) != 1 {
		t.Errorf("%d are under way after a panic", underWay(e))
	}
	if d := e.Decide(ctx, timed("/")); !d.Allowed {
		t.Errorf("%+v", d)
	}
	e.Release(ctx, d)
	if underWay(e) != 1 {
		t.Errorf("%d are under way", underWay(e))
	}
}

// A path that servers may read in several ways does not raise the class of a request.
func TestClassOfAmbiguousPath(t *testing.T) {
	t.Parallel()
	e := adaptiveEngine(t, policy.Rule{Name: "pay", Match: []string{"/pay"}, Class: "critical"}, capacity())
	for path, want := range map[string]string{"/pay": "critical", "/export/..;/../pay": "normal", "/pay;x": "normal", "/other": "normal"} {
		r := timed(path)
		d := e.Decide(context.Background(), r)
		if len(d.Loads) != 1 || d.Loads[0].Class != want {
			t.Errorf("%s: %+v, want %s", path, d.Loads, want)
		}
		e.Release(context.Background(), d)
	}
}

// A rollout of an automatic limit is enforced for a percentage of the clients, and always for the same ones.
func TestAdaptiveRollout(t *testing.T) {
	t.Parallel()
	half := capacity()
	half.Enforce = "50%"
	e := adaptiveEngine(t, half)
	ctx := context.Background()
	held := e.Decide(ctx, timed("/"))
	defer e.Release(ctx, held)
	denied := map[string]bool{}
	for range 2 {
		for i := range 200 {
			r := timed("/")
			r.Client = netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			d := e.Decide(ctx, r)
			if was, known := denied[r.Client.String()]; known && was == d.Allowed {
				t.Errorf("%v was denied: %t, and now: %t", r.Client, was, !d.Allowed)
			}
			denied[r.Client.String()] = !d.Allowed
			e.Release(ctx, d)
		}
	}
	n := 0
	for _, yes := range denied {
		if yes {
			n++
		}
	}
	if n < 60 || n > 140 {
		t.Errorf("%d of 200 clients were denied at 50 %%", n)
	}
}

// Permits are returned once, even if several copies of a decision are released while policies are swapped.
func TestAdaptiveConcurrent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	hosts := capacity()
	hosts.Name, hosts.Key, hosts.InFlight = "hosts", []string{"host"}, policy.InFlight{Auto: true}
	rules := []policy.Rule{capacity(), hosts, {Name: "rate", Limits: []string{"1000/second"}}}
	rules[0].InFlight = policy.InFlight{Auto: true, Least: 8, Most: 16}
	e := adaptiveEngine(t, rules...)
	p := e.Policy()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			var d policy.Decision
			r := timed("/")
			for i := range 2000 {
				r.Host = fmt.Sprintf("h%d.example.com", i%3)
				e.DecideInto(ctx, r, &d)
				copied := d.Clone()
				e.Answered(d, time.Now(), []int{200, 0, 503}[i%3])
				e.Release(ctx, copied)
				e.Release(ctx, d)
				e.Answered(copied, time.Now(), 200) // too late
				if g == 0 && i%100 == 0 {
					e.Swap(p)
				}
			}
		})
	}
	wg.Wait()
	if n := underWay(e); n != 0 {
		t.Errorf("%d are under way", n)
	}
}

// BenchmarkManyHosts decides about requests that all have different hosts, as a client may send them.
func BenchmarkManyHosts(b *testing.B) {
	hosts := policy.Rule{Name: "hosts", Key: []string{"host"}, InFlight: policy.InFlight{Auto: true}}
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{hosts}})
	if err != nil {
		b.Fatal(err)
	}
	e, r, n := policy.NewEngine(memory.New(), p), timed("/"), 0
	for b.Loop() {
		n++
		r.Host = fmt.Sprintf("h%d.example.com", n)
		d := e.Decide(b.Context(), r)
		if n > 2000 { // the first keep their permits
			e.Release(b.Context(), d)
		}
	}
}

// After the head of a response has been sent, its request holds no permit, however long the body takes.
func TestAdaptiveStreams(t *testing.T) {
	t.Parallel()
	e := adaptiveEngine(t, capacity())
	ctx := context.Background()
	for range 5 {
		d := e.Decide(ctx, timed("/stream"))
		if !d.Allowed || underWay(e) != 1 {
			t.Fatalf("%+v, %d under way", d, underWay(e))
		}
		e.Answered(d, time.Now(), 101)
		defer e.Release(ctx, d)
	}
	if underWay(e) != 0 {
		t.Errorf("%d are under way", underWay(e))
	}
}

// A second release of one request does not touch the permits of later ones.
func TestAdaptiveReleasedTwice(t *testing.T) {
	t.Parallel()
	two := capacity()
	two.InFlight = policy.InFlight{Auto: true, Least: 2, Most: 2}
	e, ctx := adaptiveEngine(t, two), context.Background()
	before := e.Decide(ctx, timed("/"))
	e.Release(ctx, before)
	e.Release(ctx, before)
	a, b := e.Decide(ctx, timed("/")), e.Decide(ctx, timed("/"))
	e.Release(ctx, before)
	e.Release(ctx, a)
	if n := underWay(e); n != 1 {
		t.Errorf("%d are under way, want 1", n)
	}
	e.Answered(b, time.Now(), 200)
	if n := underWay(e); n != 0 {
		t.Errorf("%d are under way", n)
	}
}
