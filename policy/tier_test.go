package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// The table comes before what the request says, and that before the default; an entry that has
// ended is none.
func TestTierSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // at 2000-01-01
		e := engine(t, `
tiers: {from: header:X-Plan, subject: api_key, default: free}
rules:
  - {name: a, key: [client_ip], limit: 1/day, tiers: {free: 2/day, pro: 3/day, max: 4/day}}
  - {name: b, key: [api_key], limit: 5/day, tiers: {pro: 6/day}}
subjects:
  - {subject: k-pro, tier: pro, reason: paid, by: billing}
  - {subject: k-trial, tier: max, until: 2000-01-01}
  - {subject: k-plain, tier: none}
  - {subject: "a/b {*}", tier: max}`)
		check := func(key, plan, want, from string) {
			t.Helper()
			r := get("/", "X-Api-Key: "+key)
			if plan != "" {
				r.Header.Set("X-Plan", plan)
			}
			x := e.Explain(t.Context(), r)
			got := ""
			for _, r := range e.Decide(t.Context(), r).Results {
				got += fmt.Sprintf(" %d %s", r.Plan.Limit.Count, r.From)
			}
			if listed := x.TierSubject; (listed != nil) != (from == "subjects") || listed != nil && (listed.Subject != key || listed.Tier != x.Tier) {
				t.Errorf("%s with plan %q: its entry is %+v", key, plan, listed)
			}
			if got = strings.TrimSpace(got); got != want || x.TierFrom != from {
				t.Errorf("%s with plan %q: %s from %s, want %s from %s", key, plan, got, x.TierFrom, want, from)
			}
		}
		check("k-pro", "", "3 tier:pro 6 tier:pro", "subjects")
		check("k-pro", "max", "3 tier:pro 6 tier:pro", "subjects")
		check("k-plain", "max", "1 rule 5 rule", "subjects") // a tier that no rule has
		check("other", "max", "4 tier:max 5 rule", "header:X-Plan")
		check("other", "", "2 tier:free 5 rule", "default")
		check("a/b {*}", "", "4 tier:max 5 rule", "subjects")
		check("*", "", "2 tier:free 5 rule", "default")
		time.Sleep(24*time.Hour - 1)
		check("k-trial", "pro", "4 tier:max 5 rule", "subjects")
		time.Sleep(time.Nanosecond)
		check("k-trial", "pro", "3 tier:pro 6 tier:pro", "header:X-Plan")
		check("k-trial", "", "2 tier:free 5 rule", "default")

		for key, want := range map[string]string{"k-pro": "6 tier:pro", "k-plain": "5 rule", "other": "5 rule 6 tier:pro"} {
			now, err := subject(t, e, "b", map[string]string{"api_key": key}).Peek(t.Context())
			got := ""
			for _, r := range now {
				got += fmt.Sprintf(" %d %s", r.Plan.Limit.Count, r.From)
			}
			if got = strings.TrimSpace(got); err != nil || got != want {
				t.Errorf("the subject %s: %s, %v, want %s", key, got, err, want)
			}
		}
	})
}

// Subjects are compared as the values of keys are, and addresses may be networks.
func TestTierSubjectValues(t *testing.T) {
	e := engine(t, `
ipv6_prefix: 56
tiers: {subject: client_ip}
rules: [{name: a, key: [client_ip], limit: 1/day, tiers: {t1: 2/day, t2: 3/day, t3: 4/day}}]
subjects:
  - {subject: 203.0.113.0/24, tier: t1}
  - {subject: 203.0.113.128/25, tier: t2}
  - {subject: "::ffff:203.0.113.200", tier: t3}
  - {subject: "2001:db8::/32", tier: t1}
  - {subject: "2001:db8:0:ff00::1", tier: t2}
  - {subject: 192.0.2.0/24, tier: t2, until: 2001-01-01}
  - {subject: 192.0.0.0/16, tier: t3}`)
	for client, want := range map[string]int64{
		"203.0.113.1": 2, "203.0.113.129": 3, "203.0.113.200": 4, "::ffff:203.0.113.1": 2, "198.51.100.1": 1,
		"2001:db8:1::1": 2, "2001:db8:0:ffff::9": 3, "2001:db9::1": 1, "192.0.2.1": 4,
	} {
		if r := e.Decide(t.Context(), request("GET", "/", client)).Results[0]; r.Plan.Limit.Count != want {
			t.Errorf("%s: %d %s, want %d", client, r.Plan.Limit.Count, r.From, want)
		}
	}
	if r := e.Decide(t.Context(), &Request{}).Results[0]; r.From != "rule" {
		t.Errorf("without an address: %s", r.From)
	}
	e = engine(t, `
tiers: {subject: body:user, from: query:plan}
rules: [{name: a, limit: 1/day, tiers: {pro: 2/day}}]
subjects: [{subject: " Álice", tier: pro}]`)
	for name, want := range map[string]string{"alice": "tier:pro", "ＡＬＩＣＥ ": "tier:pro", "bob": "rule"} {
		if r := e.Decide(t.Context(), withBody(get("/"), `{"user":"`+name+`"}`)).Results[0]; r.From != want {
			t.Errorf("%s: %s, want %s", name, r.From, want)
		}
	}
	for text, want := range map[string]string{
		"tiers: {subject: client_ip}\nsubjects: [{subject: 192.0.2.7/24, tier: t}]":                                        "client_ip: \"192.0.2.7/24\" is an address and the length of a network",
		"tiers: {subject: client_ip}\nsubjects: [{subject: alice, tier: t}]":                                               "client_ip: \"alice\" is not an address",
		"tiers: {subject: client_ip}\nsubjects: [{subject: 192.0.2.7, tier: t}, {subject: \"::ffff:192.0.2.7\", tier: t}]": "there are two entries for this subject, the first in line",
		"tiers: {subject: route}":                                           "tiers.subject cannot be route",
		"tiers: {subject: api_key}\nsubjects: [{tier: t}]":                  "the entry has no subject",
		"tiers: {subject: api_key}\nsubjects: [{subject: a}]":               "the entry has no tier",
		"tiers: {subject: api_key}\nsubjects: [{subject: a, tier: Pro}]":    `tier "Pro" is not a name; write "pro"`,
		"tiers: {subject: api_key}\nsubjects: [{subject: \"  \", tier: t}]": "api_key: no request has such a value",
		"tiers: {from: api_key}\nsubjects: [{subject: a, tier: t}]":         "nothing says which part of a request the subjects are",
		"tiers: {default: free}":                                            "tiers has no from",
	} {
		if _, err := Parse("p.yaml", []byte("version: 1\nrules: []\n"+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A tier that no rule has is legal, since it has the rules' own limits, and told once.
func TestTierUnknown(t *testing.T) {
	p := parse(t, `
tiers: {subject: api_key, default: free}
rules: [{name: a, key: [client_ip], limit: 1/day, tiers: {pro: 2/day}}]
subjects:
  - {subject: a, tier: pr0}
  - {subject: b, tier: free}
  - {subject: c, tier: pro}
  - {subject: d, tier: pr0}`)
	all := p.Warnings()
	if len(all) != 1 || all[0].String() != `test.yaml:6: no rule has the tier "pr0": who is in it has the rules' own limits; did you mean "pro"?` {
		t.Errorf("%v", all)
	}
}

// Where anybody can name the subject of somebody else, the table is a way to their tier.
func TestTierSubjectForged(t *testing.T) {
	for part, want := range map[string]string{
		"api_key": "", "client_ip": "", "header:X-User": "", "attr:user": "",
		"jwt:sub":    "whoever can send the jwt:sub of somebody else has their tier; have something before Sluice verify the token",
		"query:user": "whoever can write the query:user of somebody else has their tier; take what is a secret, as api_key is",
		"body:user":  "whoever can write the body:user of somebody else has their tier; take what is a secret, as api_key is",
	} {
		got := ""
		for _, w := range parse(t, `
tiers: {subject: "`+part+`"}
rules: [{name: a, key: [client_ip], limit: 1/day, tiers: {pro: 2/day}}]`).Warnings() {
			got += w.Message + "; " + w.Hint
		}
		if got != want {
			t.Errorf("%s: %s, want %s", part, got, want)
		}
	}
}

// Against a plain reading of what the documentation says, over random tables of addresses.
func TestTierSubjectsOfNetworks(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		doc := Document{Tiers: Tiers{Subject: "client_ip", Default: "t0"}, Rules: []Rule{{Name: "a", Limit: "1/day", Tiers: map[string]Limits{}}}}
		var networks []netip.Prefix
		for i := range 8 {
			n, _ := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), byte(r.IntN(256))}).Prefix(20 + r.IntN(13))
			if indexOf(networks, n) >= 0 {
				continue
			}
			networks = append(networks, n)
			tier := fmt.Sprint("t", i)
			doc.Rules[0].Tiers[tier] = Limits{fmt.Sprintf("%d/day", len(networks)+1)}
			doc.Subjects = append(doc.Subjects, TierSubject{Subject: n.String(), Tier: tier})
		}
		delete(doc.Rules[0].Tiers, "t0") // the default has the rule's limit
		p, err := Compile(doc)
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(memory.New(), p)
		for range 200 {
			a := netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(3)), byte(r.IntN(256))})
			want, bits := "rule", -1
			for i, n := range networks {
				if tier := doc.Subjects[i].Tier; n.Contains(a) && n.Bits() > bits {
					want, bits = "tier:"+tier, n.Bits()
					if tier == "t0" {
						want = "rule"
					}
				}
			}
			if got := e.Decide(t.Context(), &Request{Peer: a}); len(got.Results) != 1 || got.Results[0].From != want {
				t.Fatalf("seed %d, %v: %+v, want %s", seed, a, got, want)
			}
		}
	}
}

func indexOf(all []netip.Prefix, p netip.Prefix) int {
	for i := range all {
		if all[i] == p {
			return i
		}
	}
	return -1
}

// A table is swapped whole, beside the overrides, and nothing else of the policy changes.
func TestSwapSubjects(t *testing.T) {
	e := engine(t, `
tiers: {subject: "header:X-User"}
rules: [{name: a, key: ["header:X-User"], limit: 1/day, tiers: {pro: 2/day}}]
overrides: [{rule: a, key: {"header:X-User": o}, limit: 3/day}]
subjects: [{subject: s, tier: pro}]`)
	check := func(user, want string) {
		t.Helper()
		if r := e.Decide(t.Context(), get("/", "X-User: "+user)).Results[0]; r.From != want {
			t.Errorf("%s: %s, want %s", user, r.From, want)
		}
	}
	check("s", "tier:pro")
	if err := e.SwapSubjects([]TierSubject{{Subject: "t", Tier: "pro"}}); err != nil {
		t.Fatal(err)
	}
	check("s", "rule")
	check("t", "tier:pro")
	check("o", "override")
	if err := e.SwapOverrides([]Override{{Rule: "a", Key: map[string]string{"header:X-User": "p"}, Exempt: true}, {Rule: "a", Key: map[string]string{"header:X-User": "q"}, Limit: "9/day"}}); err != nil {
		t.Fatal(err)
	}
	check("t", "tier:pro")
	check("q", "override")
	check("o", "rule")
	err := e.SwapSubjects([]TierSubject{{Subject: "t", Tier: "pro"}, {Subject: "t", Tier: "pro"}})
	if err == nil || !strings.Contains(err.Error(), "subjects[1]: there are two entries for this subject, the first is subjects[0]") {
		t.Errorf("%v", err)
	}
	check("t", "tier:pro")
}
