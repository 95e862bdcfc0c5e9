package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What begins anew is named, and what keeps its counts is not. That it is so is shown by
// counting: a unit that was taken under the old policy is there under the new one or not.
func TestRestarts(t *testing.T) {
	t.Parallel()
	const rule = "rules:\n  - {name: r, limit: %s, key: [%s], algorithm: %s}\n"
	for _, tt := range []struct{ was, is string }{
		{fmt.Sprintf(rule, "10/minute", "client_ip", "token_bucket"), fmt.Sprintf(rule, "10/minute burst 20", "client_ip", "token_bucket")},
		{fmt.Sprintf(rule, "10/minute", "client_ip", "token_bucket"), fmt.Sprintf(rule, "20/minute", "client_ip", "token_bucket")},
		{fmt.Sprintf(rule, "10/minute", "client_ip", "token_bucket"), fmt.Sprintf(rule, "10/minute", "client_ip", "fixed_window")},
		{fmt.Sprintf(rule, "10/day", "client_ip", "fixed_window"), fmt.Sprintf(rule, "20/day", "client_ip", "fixed_window")},
		{fmt.Sprintf(rule, "10/day", "client_ip", "fixed_window"), fmt.Sprintf(rule, "20/day", "\"header:X-User\"", "fixed_window")},
		{fmt.Sprintf(rule, "1000/day", "client_ip", "sliding_window_log"), fmt.Sprintf(rule, "1025/day", "client_ip", "sliding_window_log")},
		{fmt.Sprintf(rule, "1000/day", "client_ip", "sliding_window_log"), fmt.Sprintf(rule, "1024/day", "client_ip", "sliding_window_log")},
	} {
		was, is := parse(t, tt.was), parse(t, tt.is)
		e := engine(t, tt.was)
		e.Decide(t.Context(), get("/", "X-User: a"))
		before := e.Decide(t.Context(), get("/", "X-User: a")).Results[0]
		e.Swap(is)
		after := e.Decide(t.Context(), get("/", "X-User: a")).Results[0]
		lost := after.Plan.Capacity-after.Remaining == 1
		if found := is.Restarts(was); (len(found) > 0) != lost || len(found) > 1 {
			t.Errorf("%sthen\n%s: %+v begins anew; %d remained, now %d of %d", tt.was, tt.is, found, before.Remaining, after.Remaining, after.Plan.Capacity)
		}
	}
}

func TestRestartSources(t *testing.T) {
	t.Parallel()
	rule := func(limit string) string { return "rules: [{name: r, " + limit + "}]" }
	bucket := func(limits ...string) string {
		for i, l := range limits {
			n, _, _ := strings.Cut(l, "/")
			limits[i] = fmt.Sprintf("%s burst %s (token_bucket)", l, n)
		}
		return strings.Join(limits, ", ")
	}
	const tiers = "tiers: {from: method}\noverrides: [{rule: r, key: {client_ip: 192.0.2.1}, limit: %s}]\nrules:\n" +
		"  - {name: r, key: [client_ip], limit: 1/minute, tiers: {pro: %s}}\n  - {name: other, limit: 5/minute}"
	for _, tt := range []struct {
		was, is string
		want    []Restart
	}{
		{rule("limit: 1/minute"), rule("limit: 1/minute"), nil},
		{rule("limit: 1/minute"), rule("limit: 2/minute"), []Restart{{"r", "rule", bucket("1/minute"), bucket("2/minute")}}},
		{rule("limit: 1/minute"), "rules: [{name: new, limit: 5/minute}]", nil},
		{fmt.Sprintf(tiers, "5/minute", "10/minute"), fmt.Sprintf(tiers, "6/minute", "20/minute"), []Restart{
			{"r", "tier:pro", bucket("10/minute"), bucket("20/minute")}, {"r", "override", bucket("5/minute"), bucket("6/minute")},
		}},
		// Of several limits those restart that change in kind, and not those that come or go.
		{rule("limits: [1/second, 10/hour]"), rule("limits: [10/hour burst 3, 1/second]"), nil},
		{rule("limits: [1/second, 10/hour]"), rule("limits: [1/second]"), nil},
		{rule("limits: [1/second, 10/hour]"), rule("limits: [1/second, 10/hour, 20/day]"), nil},
		{rule("limits: [1/second, 10/hour]"), rule("limits: [1/second, 20/hour]"), []Restart{{"r", "rule", bucket("10/hour"), bucket("20/hour")}}},
		{rule("limits: [1/second, 10/hour]"), rule("limits: [2/second, 20/hour]"),
			[]Restart{{"r", "rule", bucket("1/second", "10/hour"), bucket("2/second", "20/hour")}}},
		{rule("limit: 10/second"), rule("in_flight: 10"), []Restart{{"r", "rule", bucket("10/second"), "10 in flight"}}},
		{rule("in_flight: 10"), rule("in_flight: 5"), nil},
		{fmt.Sprintf(tiers, "5/minute", "10/minute"), fmt.Sprintf(tiers, "5/minute", "10/minute"), nil},
	} {
		if got := parse(t, tt.is).Restarts(parse(t, tt.was)); !slices.Equal(got, tt.want) {
			t.Errorf("%s\nthen %s:\n%+v, want %+v", tt.was, tt.is, got, tt.want)
		}
	}
	if names := parse(t, rule("in_flight: 10")).InFlight(); !slices.Equal(names, []string{"r"}) || parse(t, rule("limit: 1/day")).InFlight() != nil {
		t.Errorf("rules in flight: %v", names)
	}
}
