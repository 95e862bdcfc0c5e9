package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/redisstore"
)

// The number of series is bounded, however many tiers policies have had. A request counts for its tier, whichever rule
// decides about it.
func TestTiers(t *testing.T) {
	tiers := newTiers()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(tiers.decisions, tiers.refused, tiers.near)
	doc := policy.Document{
		Tiers: policy.Tiers{From: "header:X-Plan", Default: "free"},
		Rules: []policy.Rule{
			{Name: "per-user", Key: []string{"header:X-User"}, Limit: "100/hour", Tiers: map[string]policy.Limits{}},
			{Name: "per-address", Match: []string{"/tight"}, Key: []string{"client_ip"}, Limit: "1/hour"},
		},
		Overrides: []policy.Override{{Rule: "per-user", Key: map[string]string{"header:X-User": "blocked"}, Block: true}},
	}
	for i := range 3 * maxTiers {
		doc.Rules[0].Tiers[fmt.Sprint(i)] = policy.Limits{"10/hour"}
	}
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	e := policy.NewEngine(memory.New(), p)
	e.Observe(tiers.observe)
	ask := func(n int, plan, user, path string) {
		for range n {
			e.Decide(t.Context(), &policy.Request{Path: path, Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Plan": {plan}, "X-User": {user}}})
		}
	}
	for i := range 3 * maxTiers {
		ask(1, fmt.Sprint(i), fmt.Sprint(i), "/")
	}
	ask(11, "0", "a", "/")     // with 1 and 0 left it is near the limit, and then it is denied
	ask(2, "0", "b", "/tight") // near the limit and denied by a rule without tiers
	ask(9, "0", "blocked", "/")
	ask(5, "made-up", "c", "/")
	ask(7, "", "d", "/")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"sluice_tier_decisions_total": 14, "sluice_tier_near_limit_total": 3, "sluice_tier_refused_total": 2}
	for _, f := range families {
		if n := len(f.Metric); n != maxTiers+1 {
			t.Errorf("%s has %d series, want %d and one for other tiers", f.GetName(), n, maxTiers)
		}
		for _, m := range f.Metric {
			v := m.Counter.GetValue()
			switch m.Label[0].GetValue() {
			case "0":
				if v != want[f.GetName()] {
					t.Errorf("%s of the tier is %v, want %v", f.GetName(), v, want[f.GetName()])
				}
			case otherTiers:
				if f.GetName() == "sluice_tier_decisions_total" && v != 2*maxTiers+5 {
					t.Errorf("the series of other tiers has %v decisions", v)
				}
			}
		}
	}
}

// Every error of a store is counted under one of the initial reasons.
func TestReasons(t *testing.T) {
	calls := NewStoreCalls()
	series := func() int {
		ch := make(chan prometheus.Metric, 100)
		calls.failed.Collect(ch)
		return len(ch)
	}
	all := series()
	for want, err := range map[string]error{
		"timeout":         &redisstore.Error{Kind: redisstore.Unknown, Err: context.DeadlineExceeded},
		"outcome_unknown": &redisstore.Error{Kind: redisstore.Unknown, Err: errors.New("it broke")},
		"unavailable":     fmt.Errorf("not open: %w", &redisstore.Error{Kind: redisstore.Unavailable, Err: errors.New("refused")}),
		"read_only":       &redisstore.Error{Kind: redisstore.ReadOnly, Err: errors.New("READONLY")},
		"out_of_memory":   &redisstore.Error{Kind: redisstore.OutOfMemory, Err: errors.New("OOM")},
		"denied":          &redisstore.Error{Kind: redisstore.Denied, Err: errors.New("NOPERM")},
		"other":           errors.New("who knows"),
	} {
		if got := reasonOf(err); got != want {
			t.Errorf("%v is counted as %q, want %q", err, got, want)
		}
	}
	for k := range redisstore.Kind(255) { // including kinds that are added later
		calls.Note(time.Millisecond, &redisstore.Error{Kind: k, Err: errors.New("x")})
	}
	if n := series(); n != all {
		t.Errorf("%d reasons, want %d as at the start", n, all)
	}
}

// The latency covers only the calls of the last minute.
func TestStoreLatency(t *testing.T) {
	calls := NewStoreCalls()
	l := calls.Latency()
	now := time.Unix(1e9, 0)
	note := func(n int, took time.Duration) {
		for range n {
			calls.Note(took, nil)
		}
	}
	if got := l.At(now); got.Count != 0 || got.P99 != 0 {
		t.Errorf("before the first call: %+v", got)
	}
	note(50, 700*time.Microsecond)
	note(49, 4*time.Millisecond)
	note(1, 40*time.Millisecond)
	now = now.Add(30 * time.Second)
	if got := l.At(now); got.Count != 100 || got.P50 != time.Millisecond || got.P99 != 5*time.Millisecond {
		t.Errorf("after a hundred calls: %+v", got)
	}
	for range 12 { // two minutes, with two slow calls every ten seconds
		note(2, 30*time.Millisecond)
		now = now.Add(10 * time.Second)
		l.At(now)
	}
	if got := l.At(now); got.Count != 12 || got.P50 != 50*time.Millisecond || got.P99 != 50*time.Millisecond {
		t.Errorf("after slow calls only: %+v", got)
	}
	if len(l.past) > 8 {
		t.Errorf("%d earlier measurements are kept", len(l.past))
	}
}
