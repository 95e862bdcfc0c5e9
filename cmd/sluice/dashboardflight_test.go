package main

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// A rule that counts requests in flight is kept in the database, and told of in words; what it cannot
// do says so.
func TestConsoleInFlight(t *testing.T) {
	c := newConsole(t)
	c.do("POST", "/v1/rules", `{"name": "flight", "match": ["GET /flight"], "key": ["client_ip"], "in_flight": 2}`).want(201)
	c.do("POST", "/v1/rules", `{"name": "wrong", "in_flight": 2, "limit": "1/day"}`).want(422)
	ask := func(want bool) policy.Decision {
		d := c.engine.Decide(t.Context(), &policy.Request{Method: "GET", Path: "/flight", Peer: netip.MustParseAddr("192.0.2.9"), Header: http.Header{}, Ends: true})
		if d.Allowed != want {
			t.Fatalf("allowed %v", d.Allowed)
		}
		return d
	}
	c.eventually("the rule is in force", func() bool { return len(c.engine.Policy().InFlight()) == 1 })
	first := ask(true)
	ask(true)
	ask(false)

	c.as(source.Operator)
	const subject = "rule=flight&key.client_ip=192.0.2.9"
	c.open("/rules").says("2 under way at once")
	c.open("/rules/flight").says("in_flight: 2", "One subject.")
	c.open("/subjects?"+subject).says("2 under way at once", "0 of 2 left", "all of it again when those end that are under way")
	raised := c.open("/act/raise?" + subject).says("How many requests may be under way at once").effect()
	if raised["Limit"] != [2]string{"2 under way at once", "4 under way at once"} || raised["Left now"] != [2]string{"0 of 2", "2 of 4"} {
		t.Errorf("the effect of raising is %q", raised)
	}
	c.open("/act/refund?" + subject).says("which end by themselves: reset the subject")
	c.do("POST", "/v1/subjects/refund", `{"rule": "flight", "key": {"client_ip": "192.0.2.9"}, "units": 1}`).want(422)
	c.do("POST", "/v1/overrides", `{"rule": "flight", "key": {"client_ip": "192.0.2.9"}, "limit": "1/day"}`).want(422)
	c.engine.Release(t.Context(), first)
	c.open("/subjects?" + subject).says("1 of 2 left")
	if e := c.open("/act/reset?" + subject).effect()["Left"]; e != [2]string{"1 of 2", "2 of 2"} {
		t.Errorf("the effect of a reset is %q", e)
	}
	c.act("/act/reset?" + subject)
	c.open("/subjects?"+subject).says("2 of 2 left", "nothing is used")
	c.open("/act/block?" + subject).says("all refused by this rule until")

	// Another number for a subject, by the console, and for a tier.
	c.act("/act/raise?"+subject, "limit", "7", "for", "24h", "reason", "a launch")
	c.open("/overrides").says("7 under way at once")
	c.open("/subjects?"+subject).says("7 under way at once", "7 of 7 left")
	c.do("POST", "/v1/overrides", `{"rule": "flight", "key": {"client_ip": "192.0.2.10"}, "in_flight": 3}`).want(201)
	c.do("POST", "/v1/overrides", `{"rule": "flight", "key": {"client_ip": "192.0.2.11"}, "in_flight": 3, "limit": "1/day"}`).want(422)
	c.as(source.Admin)
	c.do("PUT", "/v1/settings", `{"tiers": {"from": "header:X-Plan"}}`)
	c.do("POST", "/v1/tiers", `{"name": "plus", "limits": {"flight": 9}}`).want(201)
	c.do("POST", "/v1/tiers", `{"name": "team", "limits": {"flight": "9/minute"}}`).want(422)
}
