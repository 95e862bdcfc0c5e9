package rules

import (
	"slices"
	"testing"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// A rule is evictable if its keys, with the limit used up, expire before new keys of another.
func TestEvictable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rules, long string
		short       []string
	}{
		{"[{name: a, limit: 60/minute}]", "a", nil},
		{"[{name: a, limit: 60/minute}, {name: b, limit: 600/hour}]", "b", nil},
		{"[{name: a, limit: 60/minute}, {name: b, limit: 100/day}]", "b", []string{"a"}},
		{"[{name: a, limit: 60/minute}, {name: b, limit: 1000/day, algorithm: fixed_window}, {name: c, key: [client_ip], in_flight: 5}]", "b", []string{"a", "c"}},
		{"[{name: a, limit: 9/day, algorithm: fixed_window}, {name: b, limit: 10/day, algorithm: fixed_window}]", "a", nil},
		{"[{name: a, limit: 60/minute, algorithm: sliding_window_log}, {name: b, limit: 100/90s, algorithm: sliding_window_log}]", "b", nil},
		{"[{name: a, limit: 60/hour, tiers: {pro: 60/minute}}, {name: b, limit: 30/hour}]", "b", []string{"a"}},
	} {
		p, err := policyfile.Parse("p", []byte("version: 1\ntiers: {from: header:X-Plan, default: free}\nrules: "+test.rules))
		if err != nil {
			t.Fatal(err)
		}
		if short, long := evictable(p.Plans()); long != test.long || !slices.Equal(short, test.short) {
			t.Errorf("%s: new keys of %q free those of %q, want %q and %q", test.rules, long, short, test.long, test.short)
		}
	}
	if short, long := evictable(new(policy.Policy).Plans()); len(short) > 0 || long != "" {
		t.Errorf("a policy without rules: %q, %q", short, long)
	}
}
