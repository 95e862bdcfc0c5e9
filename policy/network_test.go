package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// Of the networks that have an address the smallest one holds that has not ended: as an override with a limit, a
// block or an exemption, and as a subject of a tier.
func TestNetworksModel(t *testing.T) {
	t.Parallel()
	r := dice{rand.New(rand.NewPCG(seed.Of(t), 1))}
	address := func() netip.Addr {
		b := [16]byte{0x20, 0x01, 15: 1}
		for _, i := range []int{0, 1, 2, 3, 7} {
			b[i] = byte(r.IntN(4)) << (6 * r.IntN(2))
		}
		if r.one(2) {
			return netip.AddrFrom4([4]byte(b[:]))
		}
		return netip.AddrFrom16(b)
	}
	for range 300 {
		tiers := map[string]Limits{}
		doc := Document{Tiers: Tiers{Subject: "client_ip"}, Rules: []Rule{
			{Name: "a", Key: []string{"client_ip"}, Limit: "1000/day"}, {Name: "b", Limit: "900/day", Tiers: tiers},
		}}
		holds := make(map[netip.Prefix]string)
		for i := range r.IntN(20) {
			a := address()
			p := netip.PrefixFrom(a, r.IntN(min(a.BitLen(), 64)+1)).Masked()
			if holds[p] != "" {
				continue
			}
			o, tier := Override{Rule: "a", Key: map[string]string{"client_ip": p.String()}}, fmt.Sprint("t", i)
			switch r.IntN(4) {
			case 0:
				o.Block, holds[p] = true, "blocked=a"
			case 1:
				o.Exempt, holds[p] = true, "allowed b tier:"+tier
			default:
				o.Limit, holds[p] = fmt.Sprintf("%d/day", i+1), fmt.Sprintf("allowed a %d override b tier:%s", i+1, tier)
			}
			subject := TierSubject{Subject: p.String(), Tier: tier}
			if r.one(4) {
				o.Until, subject.Until, holds[p] = "2001-01-01", "2001-01-01", "ended"
			}
			tiers[tier] = Limits{"800/day"}
			doc.Overrides, doc.Subjects = append(doc.Overrides, o), append(doc.Subjects, subject)
		}
		e := NewEngine(memory.New(), compile(t, doc))
		for range 50 {
			a := address()
			want, bits := "allowed a 1000 rule b rule", -1
			for p, word := range holds {
				if p.Contains(a) && p.Bits() > bits && word != "ended" {
					want, bits = word, p.Bits()
				}
			}
			d := e.Explain(t.Context(), request("GET", "/", a.String())).Decision
			got := verdictOf(&d)
			for _, result := range d.Results {
				switch {
				case result.Rule == "b":
					got += " b " + result.From
				case result.Allowed:
					got += fmt.Sprint(" a ", result.Plan.Limit.Count, " ", result.From)
				}
			}
			if got != want {
				t.Fatalf("%v: %s, want %s of /%d\n%v", a, got, want, bits, doc.Overrides)
			}
		}
	}
}
