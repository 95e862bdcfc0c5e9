package telemetry_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// loadRules returns rules with an automatic limit that is always 4: for sheddable requests it is 2, and for critical
// ones 8.
func loadRules(shadow bool) []policy.Rule {
	return []policy.Rule{
		{Name: "capacity", InFlight: policy.InFlight{Auto: true, Least: 1, Most: 4}, Shadow: shadow},
		{Name: "pay", Match: []string{"/pay"}, Class: "critical"},
		{Name: "exports", Match: []string{"/export"}, Class: "sheddable"},
	}
}

// enter decides about n requests that stay in flight, and returns how many were allowed.
func enter(t *testing.T, m *member, path string, n int) (passed int) {
	t.Helper()
	for range n {
		d := m.engine.Decide(t.Context(), &policy.Request{Path: path, Door: "gateway", Ends: true, Timed: true})
		if d.Allowed {
			passed++
		}
	}
	return passed
}

func alertNames(v *telemetry.View) string {
	var all []string
	for _, a := range v.Alerts(9) {
		all = append(all, a.Level+" "+a.Alert)
	}
	return strings.Join(all, ", ")
}

// Denials by automatic limits are counted by rule, integration and class, on one instance and over the fleet. The alert
// lasts until a minute after the last denial.
func TestLoads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := &wall{}
		a, b := join(t, "a", board, loadRules(false)...), join(t, "b", board, loadRules(false)...)
		if enter(t, a, "/", 7) != 4 || enter(t, a, "/export", 2) != 0 || enter(t, a, "/pay", 1) != 1 || enter(t, b, "/", 1) != 1 {
			t.Fatal("the limit is not 4")
		}
		began := time.Now()

		for _, c := range a.fleet.Recorder.Rules() {
			want := map[string]telemetry.Counts{
				"capacity": {telemetry.Allow: 5, telemetry.Deny: 5}, "pay": {telemetry.Allow: 1}, "exports": {telemetry.Allow: 2},
			}[c.Rule]
			if c.Counts != want {
				t.Errorf("%s has %v, want %v", c.Rule, c.Counts, want)
			}
		}
		denied := telemetry.ByClass{2, 3, 0}
		if door := a.fleet.Recorder.Doors()[0]; door.Overloaded != denied || door.Counts != (telemetry.Counts{telemetry.Allow: 5, telemetry.Deny: 5}) {
			t.Errorf("the integration has %+v", door)
		}
		if l := a.fleet.Recorder.Loads(); len(l) != 1 || l[0].Denied != denied || l[0].Limit != 4 || l[0].InFlight != 5 || l[0].Limits != 1 {
			t.Errorf("the loads are %+v", l)
		}

		time.Sleep(15 * time.Second) // until the posts are read
		v := b.fleet.View()
		l := v.Rule("capacity").Load
		if l.Limits != 2 || l.Limit != 8 || l.InFlight != 6 || !l.Overloaded.Equal(began.Truncate(time.Second)) {
			t.Errorf("the fleet has %+v", l.LoadState)
		}
		if got, _ := l.LastMinute(); got != denied || l.Recent[len(l.Recent)-1].Limit != 8 || l.Days[len(l.Days)-1].Denied != denied {
			t.Errorf("the series has %v, and %+v", got, l.Recent[len(l.Recent)-1])
		}
		if v.Rule("pay").Load != nil || v.Rule("capacity").Asked[telemetry.Hour] != 0 {
			t.Error("a rule without an automatic limit has one, or one without a key has subjects")
		}
		if h := v.Headline(); !strings.HasSuffix(h.Text, "UTC capacity sheds 3 normal requests, 2 sheddable requests in the last minute.") || h.Rule != "capacity" {
			t.Errorf("the headline is %q", h.Text)
		}
		if got := alertNames(v); got != "bad shedding:capacity" {
			t.Errorf("the alerts are %q", got)
		}

		// The alert ends a minute after the last denial.
		time.Sleep(time.Until(began.Add(59 * time.Second)))
		if got := alertNames(a.fleet.View()); got != "bad shedding:capacity" {
			t.Errorf("after 59 seconds the alerts are %q", got)
		}
		time.Sleep(2 * time.Second)
		if got := alertNames(a.fleet.View()); got != "" {
			t.Errorf("after 61 seconds the alerts are %q", got)
		}

		time.Sleep(20 * time.Second)
		enter(t, a, "/export", 1)
		time.Sleep(2 * time.Second)
		if got := alertNames(a.fleet.View()); got != "unknown shedding-sheddable:capacity" {
			t.Errorf("with sheddable requests, the alerts are %q", got)
		}

		// A stopped instance has no state any more, but its counts stay.
		a.stop()
		time.Sleep(20 * time.Second)
		l = b.fleet.View().Rule("capacity").Load
		if l.Limits != 1 || l.Limit != 4 || !l.Overloaded.IsZero() || l.Days[len(l.Days)-1].Denied.Total()+l.Days[max(len(l.Days)-2, 0)].Denied.Total() < 6 {
			t.Errorf("after an instance has stopped: %+v", l.LoadState)
		}
	})
}

// A shadow allows all requests, and counts those that it would have denied.
func TestLoadsOfShadow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := join(t, "a", nil, loadRules(true)...)
		if enter(t, m, "/", 6) != 6 {
			t.Fatal("a shadow denies")
		}
		time.Sleep(2 * time.Second)
		if c := m.fleet.Recorder.Rules()[0].Counts; c != (telemetry.Counts{telemetry.Allow: 4, telemetry.WouldDeny: 2}) {
			t.Errorf("the shadow has %v", c)
		}
		door := m.fleet.Recorder.Doors()[0]
		if door.Overloaded.Total() != 0 || door.Counts != (telemetry.Counts{telemetry.Allow: 4, telemetry.WouldDeny: 2}) {
			t.Errorf("the integration has %+v", door)
		}
		v := m.fleet.View()
		if by, would := v.Rule("capacity").Load.Sheds(); !would || by != (telemetry.ByClass{0, 2, 0}) {
			t.Errorf("the shadow sheds %v, %v", by, would)
		}
		if got := alertNames(v); got != "unknown would-shed:capacity" {
			t.Errorf("the alerts are %q", got)
		}
	})
}
