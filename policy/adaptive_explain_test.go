package policy_test

import (
	"context"
	"testing"

	"github.com/sluicehq/sluice/policy"
)

// An explanation contains the current state of an automatic limit, takes no permit, and denies a request that would be
// denied.
func TestExplainAdaptive(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	e := adaptiveEngine(t, capacity(),
		policy.Rule{Name: "rate", Limits: []string{"2/hour"}},
		policy.Rule{Name: "pay", Match: []string{"/pay"}, Class: "critical"},
		policy.Rule{Name: "later", InFlight: policy.InFlight{Auto: true, Least: 1, Most: 1}, Shadow: true})
	described := &policy.Request{Method: "GET", Path: "/", Host: "example.com"}
	before := e.Explain(ctx, described)
	if l := before.Rules[0].Load; !before.Decision.Allowed || l == nil || !l.Allowed || l.Class != "normal" || l.State.Rule != "" || before.Rules[1].Load != nil {
		t.Errorf("before the first request: %+v, %+v", before.Decision, l)
	}
	held := e.Decide(ctx, timed("/"))
	for range 3 {
		full := e.Explain(ctx, described)
		if l := full.Rules[0].Load; full.Decision.Overloaded != "capacity" || full.Decision.Allowed || l.Allowed || l.State.Limit != 1 || l.State.InFlight != 1 {
			t.Fatalf("with all permits taken: %+v, %+v", full.Decision, l)
		}
		if l := full.Rules[3].Load; l.Allowed || !l.Shadow {
			t.Errorf("the shadow: %+v", l)
		}
	}
	described.Path = "/pay"
	if pay := e.Explain(ctx, described); !pay.Decision.Allowed || pay.Rules[0].Load.Class != "critical" {
		t.Errorf("a critical request: %+v", pay.Decision)
	}
	e.Release(ctx, held)
	described.Path = "/"
	if after := e.Explain(ctx, described); !after.Decision.Allowed || underWay(e) != 0 {
		t.Errorf("after the release: %+v, %d under way", after.Decision, underWay(e))
	}
}

// Limits after the one that denies are not evaluated.
func TestLoadsAsked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	later := capacity()
	later.Name, later.Shadow = "later", true
	e := adaptiveEngine(t, capacity(), later)
	held := e.Decide(ctx, timed("/"))
	if d := e.Decide(ctx, timed("/")); len(d.Loads) != 1 || d.Loads[0].Rule != "capacity" || d.Loads[0].Because() != "overload" {
		t.Errorf("%+v", d.Loads)
	}
	e.Release(ctx, held)
}
