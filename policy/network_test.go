package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// limitIn returns the limit that a request has under the first rule, and where it is from.
func limitIn(t *testing.T, e *Engine, r *Request) string {
	t.Helper()
	res := e.Explain(t.Context(), r).Decision.Results[0]
	return fmt.Sprint(res.Plan.Limit.Count, " ", res.From)
}

func TestOverrideOfNetwork(t *testing.T) {
	e := engine(t, `
ipv6_prefix: 56
rules:
  - {name: a, key: [client_ip, api_key], limit: 1/day, algorithm: fixed_window}
overrides:
  - {rule: a, key: {client_ip: 203.0.113.0/24}, limit: 2/day}
  - {rule: a, key: {client_ip: 203.0.113.128/25}, limit: 3/day}
  - {rule: a, key: {client_ip: 203.0.113.200}, limit: 4/day}
  - {rule: a, key: {client_ip: 203.0.0.0/16, api_key: k}, limit: 5/day}
  - {rule: a, key: {client_ip: 203.0.113.64/26, api_key: k}, limit: 6/day}
  - {rule: a, key: {api_key: vip}, limit: 7/day}
  - {rule: a, key: {client_ip: "2001:db8::/32"}, limit: 8/day}
  - {rule: a, key: {client_ip: "2001:db8:0:ff00::/56"}, limit: 9/day}
  - {rule: a, key: {client_ip: "::/0"}, limit: 10/day}
  - {rule: a, key: {client_ip: 192.0.2.0/24}, limit: 11/day, until: 2001-01-01}
  - {rule: a, key: {client_ip: 192.0.0.0/16}, limit: 12/day}`)
	for _, tt := range []struct{ client, key, want string }{
		{"198.51.100.1", "x", "1 rule"},
		{"203.0.113.1", "x", "2 override"},
		{"203.0.113.1", "", "2 override"},
		{"::ffff:203.0.113.1", "x", "2 override"},
		{"203.0.113.129", "x", "3 override"},
		{"203.0.113.200", "x", "4 override"},
		{"203.0.113.200", "k", "5 override"}, // who names more parts counts
		{"203.0.113.64", "k", "6 override"},
		{"203.0.113.64", "vip", "2 override"}, // earlier parts come first
		{"198.51.100.1", "vip", "7 override"},
		{"2001:db8:1::1", "x", "8 override"},
		{"2001:db8:0:ffff::1", "x", "9 override"},
		{"2001:db9::1", "x", "10 override"},
		{"192.0.2.1", "x", "12 override"}, // what has ended leaves it to a larger network
	} {
		r := request("GET", "/", tt.client)
		if tt.key != "" {
			r.Header.Set("X-Api-Key", tt.key)
		}
		if got := limitIn(t, e, r); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.client, tt.key, got, tt.want)
		}
	}
	if got := limitIn(t, e, &Request{}); got != "1 rule" {
		t.Errorf("without an address: %s", got)
	}
	// Each address has a count of its own.
	for _, client := range []string{"203.0.113.1", "203.0.113.2"} {
		if got := admitted(t, e, request("GET", "/", client), 5); got != 2 {
			t.Errorf("%s: %d of 2 were admitted", client, got)
		}
	}
	// Administration holds a subject to the override of its network, too, and has no subjects
	// that are networks.
	s, err := e.Subject("a", map[string]string{"client_ip": "203.0.113.1", "api_key": ""})
	if err != nil {
		t.Fatal(err)
	}
	if now, err := s.Peek(t.Context()); err != nil || len(now) != 1 || now[0].From != overridden || now[0].Plan.Limit.Count != 2 || now[0].Remaining != 0 {
		t.Errorf("%+v, %v", now, err)
	}
	for _, network := range []string{"203.0.113.0/24", "203.0.113.1/24"} {
		if _, err := e.Subject("a", map[string]string{"client_ip": network, "api_key": ""}); err == nil {
			t.Errorf("%s is a subject", network)
		}
	}
}

// Random overrides hold as the smallest network that has an address says, of those that have not
// ended: with a limit, a block or an exemption.
func TestOverrideOfNetworkModel(t *testing.T) {
	seed := seed.Of(t)
	r := rand.New(rand.NewPCG(seed, 1))
	address := func() netip.Addr {
		b := [16]byte{0x20, 0x01, 15: 1}
		for _, i := range []int{0, 1, 2, 3, 7} {
			b[i] = byte(r.IntN(4)) << (6 * r.IntN(2))
		}
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte(b[:]))
		}
		return netip.AddrFrom16(b)
	}
	for range 300 {
		doc := Document{Rules: []Rule{{Name: "a", Key: []string{"client_ip"}, Limit: "1000/day"}}}
		networks := make(map[netip.Prefix]string)
		for i := range r.IntN(20) {
			a := address()
			p := netip.PrefixFrom(a, r.IntN(min(a.BitLen(), 64)+1)).Masked()
			if networks[p] != "" {
				continue
			}
			o := Override{Rule: "a", Key: map[string]string{"client_ip": p.String()}}
			switch r.IntN(4) {
			case 0:
				o.Block, networks[p] = true, "blocked by a, a 0 override"
			case 1:
				o.Exempt, networks[p] = true, "passes"
			default:
				o.Limit, networks[p] = fmt.Sprintf("%d/day", i+1), fmt.Sprintf("passes, a %d override", i)
			}
			if r.IntN(4) == 0 {
				o.Until, networks[p] = "2001-01-01", "ended"
			}
			doc.Overrides = append(doc.Overrides, o)
		}
		p, err := Compile(doc)
		if err != nil {
			t.Fatal(err)
		}
		e := NewEngine(memory.New(), p)
		for range 50 {
			a := address()
			want, bits := "passes, a 999 rule", -1
			for p, word := range networks {
				if p.Contains(a) && p.Bits() > bits && word != "ended" {
					want, bits = word, p.Bits()
				}
			}
			r := request("GET", "/", a.String())
			got := told(e.Decide(t.Context(), r))
			if err := forget(e, a); err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Fatalf("seed %d: %v: %s, want %s of /%d\n%v", seed, a, got, want, bits, doc.Overrides)
			}
		}
	}
}

// forget resets what rule "a" has counted for an address.
func forget(e *Engine, a netip.Addr) error {
	s, err := e.Subject("a", map[string]string{"client_ip": a.String()})
	if err != nil {
		return err
	}
	return s.Reset(context.Background())
}

func TestSwapOverridesOfNetworks(t *testing.T) {
	e := engine(t, `rules: [{name: a, key: [client_ip], limit: 1/day}]`)
	old := e.Policy()
	network := func(n, limit string) Override {
		return Override{Rule: "a", Key: map[string]string{"client_ip": n}, Limit: limit}
	}
	if err := e.SwapOverrides([]Override{network("192.0.2.0/24", "5/day"), network("192.0.2.0", "7/day")}); err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]string{"192.0.2.1": "5 override", "192.0.2.0": "7 override", "192.0.3.0": "1 rule"} {
		if got := limitIn(t, e, request("GET", "/", client)); got != want {
			t.Errorf("%s: %s, want %s", client, got, want)
		}
	}
	was := e.Policy()
	if err := e.SwapOverrides([]Override{network("192.0.2.0/24", "9/hour")}); err != nil {
		t.Fatal(err)
	}
	if all := e.Policy().Restarts(was); len(all) != 1 || !strings.HasPrefix(all[0].Was, "5/day") || !strings.HasPrefix(all[0].Is, "9/hour") {
		t.Errorf("anew: %+v", all)
	}
	if err := e.SwapOverrides([]Override{network("192.0.2.0/24", "5/day"), network("192.0.2.0/24", "6/day")}); err == nil || !strings.Contains(err.Error(), "two overrides") {
		t.Errorf("twice: %v", err)
	}
	if all := old.Restarts(old); len(all) != 0 {
		t.Errorf("nothing has changed: %+v", all)
	}
}
