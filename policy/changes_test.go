package policy

import (
	"slices"
	"testing"
)

// What changed is named by rule and field.
func TestChanges(t *testing.T) {
	t.Parallel()
	compile := func(change func(*Document)) *Policy {
		doc := Document{
			IPv6Prefix: 64, Tiers: Tiers{Subject: "api_key", Default: "free"},
			Rules: []Rule{
				{Name: "login", Match: []string{"POST /login"}, Key: []string{"client_ip"}, Limit: "6/minute"},
				{Name: "api", Key: []string{"api_key"}, Limit: "60/minute", Tiers: map[string]Limits{"pro": {"600/minute"}}},
				{Name: "search", Key: []string{"client_ip"}, Limits: []string{"1/second", "100/day"}},
			},
		}
		change(&doc)
		p := compile(t, doc)
		return p
	}
	old := compile(func(*Document) {})
	for name, c := range map[string]struct {
		change func(*Document)
		want   []string
	}{
		"nothing": {func(d *Document) {
			d.Subjects = []TierSubject{{Subject: "k", Tier: "pro"}}
			d.Overrides = []Override{{Rule: "login", Key: map[string]string{"client_ip": "192.0.2.1"}, Block: true}}
		}, nil},
		"two limits": {func(d *Document) { d.Rules[0].Limit, d.Rules[2].Limits = "8/minute", []string{"1/second", "50/day"} },
			[]string{"login: limit 8/minute, was 6/minute", "search: limits 1/second, 50/day, was 1/second, 100/day"}},
		"a tier's": {func(d *Document) { d.Rules[1].Tiers = map[string]Limits{"pro": {"700/minute"}} }, []string{"api: tiers changed"}},
		"settings": {func(d *Document) { d.IPv6Prefix, d.TrustedProxies, d.Tiers.Default = 56, []string{"10.0.0.1"}, "basic" },
			[]string{"trusted_proxies 10.0.0.1", "ipv6_prefix 56, was 64", "tiers changed"}},
		"come and gone": {func(d *Document) {
			d.Rules = []Rule{{Name: "new", Limit: "1/day"}, d.Rules[2], d.Rules[0]}
			d.Rules[1].Shadow = true
		}, []string{"new is new", "search: shadow true", "api is gone", "order of the rules changed"}},
		"a limit goes": {func(d *Document) { d.Rules[0].Limit, d.Rules[0].InFlight = "", 5 },
			[]string{"login: limit removed, was 6/minute", "login: in_flight 5"}},
	} {
		p := compile(c.change)
		var got []string
		for _, change := range p.Changes(old) {
			got = append(got, change.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
