package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/redisstore"
)

// However many tiers policies have had, there are no more series than are stated.
func TestTiersAreBounded(t *testing.T) {
	tiers := newTiers()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(tiers)
	plan, err := sluice.NewPlan(sluice.Limit{Count: 10, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	observe := func(from string, allowed bool, remaining int64) {
		tiers.observe(t.Context(), &policy.Observation{Request: &policy.Request{}, Decision: policy.Decision{Results: []policy.Result{
			{From: from, Plan: plan, Decision: sluice.Decision{Allowed: allowed, Remaining: remaining}},
		}}})
	}
	for i := range 3 * maxTiers {
		observe(fmt.Sprint("tier:", i), true, 9)
	}
	observe("rule", true, 0)
	observe("tier:0", true, 1)
	observe("tier:0", true, 2) // exactly a fifth
	observe("tier:0", false, 0)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"sluice_tier_decisions_total": 4, "sluice_tier_near_limit_total": 1, "sluice_tier_refused_total": 1}
	for _, f := range families {
		if n := len(f.Metric); n != maxTiers+1 {
			t.Errorf("%s has %d series of %d tiers", f.GetName(), n, maxTiers)
		}
		for _, m := range f.Metric {
			v := m.Counter.GetValue()
			switch m.Label[0].GetValue() {
			case "0":
				if v != want[f.GetName()] {
					t.Errorf("%s of the tier is %v, want %v", f.GetName(), v, want[f.GetName()])
				}
			case otherTiers:
				if f.GetName() == "sluice_tier_decisions_total" && v != 2*maxTiers {
					t.Errorf("the others have %v decisions", v)
				}
			}
		}
	}
}

// Whatever a store fails with, there is a reason for it that is counted.
func TestReasons(t *testing.T) {
	calls := newStoreCalls()
	for want, err := range map[string]error{
		"timeout":         &redisstore.Error{Kind: redisstore.Unknown, Err: context.DeadlineExceeded},
		"outcome_unknown": &redisstore.Error{Kind: redisstore.Unknown, Err: errors.New("it broke")},
		"unavailable":     fmt.Errorf("not open: %w", &redisstore.Error{Kind: redisstore.Unavailable, Err: errors.New("refused")}),
		"read_only":       &redisstore.Error{Kind: redisstore.ReadOnly, Err: errors.New("READONLY")},
		"out_of_memory":   &redisstore.Error{Kind: redisstore.OutOfMemory, Err: errors.New("OOM")},
		"denied":          &redisstore.Error{Kind: redisstore.Denied, Err: errors.New("NOPERM")},
		"other":           errors.New("who knows"),
	} {
		if got := reasonOf(err); got != want || calls.failed[got] == nil {
			t.Errorf("%v is counted as %q, want %q", err, got, want)
		}
	}
	for k := range redisstore.Kind(255) { // kinds that come later, too
		reason := reasonOf(&redisstore.Error{Kind: k, Err: errors.New("x")})
		calls.note(time.Millisecond, &redisstore.Error{Kind: k, Err: errors.New("x")})
		if calls.failed[reason] == nil {
			t.Errorf("nobody counts %q", reason)
		}
	}
}

// The latency is that of the last minute, and forgets what was before.
func TestStoreLatency(t *testing.T) {
	calls := newStoreCalls()
	l := &storeLatency{calls: calls}
	now := time.Unix(1e9, 0)
	note := func(n int, took time.Duration) {
		for range n {
			calls.note(took, nil)
		}
	}
	if got := l.at(now); got.Count != 0 || got.P99 != 0 {
		t.Errorf("before the first: %+v", got)
	}
	note(50, 700*time.Microsecond)
	note(49, 4*time.Millisecond)
	note(1, 40*time.Millisecond)
	now = now.Add(30 * time.Second)
	if got := l.at(now); got.Count != 100 || got.P50 != time.Millisecond || got.P99 != 5*time.Millisecond {
		t.Errorf("of a hundred: %+v", got)
	}
	for range 12 { // two minutes, with two slow calls every ten seconds
		note(2, 30*time.Millisecond)
		now = now.Add(10 * time.Second)
		l.at(now)
	}
	if got := l.at(now); got.Count != 12 || got.P50 != 50*time.Millisecond || got.P99 != 50*time.Millisecond {
		t.Errorf("of the last minute: %+v", got)
	}
	if len(l.past) > 8 {
		t.Errorf("%d are remembered", len(l.past))
	}
}
