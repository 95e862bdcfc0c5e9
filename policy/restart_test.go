package policy

import (
	"fmt"
	"slices"
	"testing"
)

// What begins anew is named, and what keeps its counts is not. That it is so is shown by
// counting: a unit that was taken under the old policy is there under the new one or not.
func TestRestarts(t *testing.T) {
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
	document := func(limit, pro, alice string) *Policy {
		return parse(t, fmt.Sprintf(`
tiers: {from: "header:X-Plan"}
rules:
  - name: r
    key: ["header:X-User"]
    limit: %s
    tiers: {pro: %s}
  - {name: other, limit: 5/minute}
overrides:
  - {rule: r, key: {"header:X-User": alice}, limit: %s}
`, limit, pro, alice))
	}
	old := document("1/minute", "10/minute", "5/minute")
	for _, tt := range []struct {
		p    *Policy
		want []Restart
	}{
		{document("1/minute", "10/minute", "5/minute"), nil},
		{document("2/minute", "10/minute", "5/minute"), []Restart{{"r", "rule", "1/minute burst 1 (token_bucket)", "2/minute burst 2 (token_bucket)"}}},
		{document("1/minute", "20/minute", "6/minute"), []Restart{
			{"r", "tier:pro", "10/minute burst 10 (token_bucket)", "20/minute burst 20 (token_bucket)"},
			{"r", "override", "5/minute burst 5 (token_bucket)", "6/minute burst 6 (token_bucket)"},
		}},
		{parse(t, "rules:\n  - {name: new, limit: 5/minute}\n"), nil},
	} {
		if got := tt.p.Restarts(old); !slices.Equal(got, tt.want) {
			t.Errorf("%+v begins anew, want %+v", got, tt.want)
		}
	}
}
