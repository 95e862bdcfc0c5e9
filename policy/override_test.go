package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// If very many overrides or subjects have ended, the warnings do not list all of them.
func TestEndedAreBounded(t *testing.T) {
	t.Parallel()
	doc := Document{Rules: []Rule{{Name: "a", Key: []string{"header:X"}, Limit: "1/day"}}, Tiers: Tiers{Subject: "api_key", Default: "free"}}
	for i := range 1000 {
		doc.Overrides = append(doc.Overrides, Override{Rule: "a", Key: map[string]string{"header:X": fmt.Sprint(i)}, Limit: "1/day", Until: "2001-01-01"})
		doc.Subjects = append(doc.Subjects, TierSubject{Subject: fmt.Sprint(i), Tier: "free", Until: "2001-01-01"})
	}
	p := compile(t, doc)
	var last []string
	for _, w := range p.Warnings() {
		if strings.Contains(w.Message, "more") {
			last = append(last, w.String())
		}
	}
	if want := "overrides: 990 more have ended; remove them\nsubjects: 990 more have ended; remove them"; strings.Join(last, "\n") != want || len(p.Warnings()) < 2*maxEnded {
		t.Errorf("%d warnings: %q", len(p.Warnings()), last)
	}
}

func TestParseUntil(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "ends of overrides") {
		got, err := ParseUntil(row.In)
		if (err != nil) != (row.Want == "none") || err == nil && got.UTC().Format(time.RFC3339) != row.Want {
			t.Errorf("%q: %v, %v, want %s", row.In, got, err, row.Want)
		}
	}
}

// Traces, results and subjects contain the source of rules and overrides.
func TestSources(t *testing.T) {
	t.Parallel()
	of := func(user string) map[string]string { return map[string]string{"header:X-User": user} }
	e := NewEngine(memory.New(), compile(t, Document{
		Rules: []Rule{
			{Name: "a", Key: []string{"header:X-User"}, Limit: "5/day", Source: "file"},
			{Name: "b", Match: []string{"/never"}, Limit: "5/day", Source: "database"},
		},
		Overrides: []Override{
			{Rule: "a", Key: of("limited"), Limit: "9/day", Reason: "a launch", By: "support", Until: "2999-01-01", Source: "database"},
			{Rule: "a", Key: of("same"), Limit: "9/day", Source: "file"},
		},
	}))
	for user, want := range map[string]string{"other": "rule:file", "limited": "override:database", "same": "override:file"} {
		x, s := e.Explain(t.Context(), get("/", "X-User: "+user)), subjectOf(t, e, "a", of(user))
		o, found := s.Override()
		if found != (user != "other") || found && !reflect.DeepEqual(o, *x.Rules[0].Override) {
			t.Errorf("%s: the override of the subject is %+v, %v, and explained as %+v", user, o, found, x.Rules[0].Override)
		}
		now, err := s.Peek(t.Context())
		if err != nil || now[0].From+":"+now[0].Source != want || x.Decision.Results[0].From+":"+x.Decision.Results[0].Source != want {
			t.Errorf("%s: %+v, %v, and explained as %+v", user, now, err, x.Decision.Results)
		}
		if x.Rules[0].Source != "file" || x.Rules[1].Source != "database" {
			t.Errorf("%s: sources of rules %+v", user, x.Rules)
		}
	}
}

// Of the networks that contain an address, the smallest one that has not ended applies: as an override with a limit, a
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
