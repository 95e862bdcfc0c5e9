package networks

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

func TestContains(t *testing.T) {
	t.Parallel()
	for _, row := range testkit.SectionOf(t, "testdata/networks.txt", "addresses that networks have").Rows(t) {
		var all []netip.Prefix
		for _, text := range strings.Fields(row.In) {
			all = append(all, netip.MustParsePrefix(text))
		}
		s := New(all)
		has, no, _ := strings.Cut(row.Want, "not ")
		for i, list := range []string{has, no} {
			for _, a := range strings.Fields(list) {
				if s.Contains(netip.MustParseAddr(a)) != (i == 0) {
					t.Errorf("%s, %s: %v", row.In, a, i > 0)
				}
			}
		}
	}
	if New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}).Contains(netip.Addr{}) {
		t.Error("the zero Addr is in a network")
	}
}

// generator makes networks and addresses that are often inside of each other.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

func (g generator) address() netip.Addr {
	var b [16]byte
	for i := range b {
		if b[i] = byte(g.Uint32()); g.IntN(3) > 0 {
			b[i] = []byte{0, 1, 254, 255}[g.IntN(4)]
		}
	}
	if g.IntN(2) == 0 {
		return netip.AddrFrom4([4]byte(b[:]))
	}
	return netip.AddrFrom16(b)
}

func (g generator) network() netip.Prefix {
	a := g.address()
	return netip.PrefixFrom(a, g.IntN(a.BitLen()+1)).Masked()
}

// lastOf returns the last address of a network, bit by bit.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// A set contains an address if one of its networks does, above all at the edges of networks.
func TestModel(t *testing.T) {
	t.Parallel()
	seed := seed.Of(t)
	g := newGenerator(seed)
	for range 2000 {
		all := make([]netip.Prefix, g.IntN(12))
		var asked []netip.Addr
		for i := range all {
			all[i] = g.network()
			first, end := all[i].Addr(), lastOf(all[i])
			asked = append(asked, g.address(), first, end, first.Prev(), end.Next())
		}
		s := New(slices.Clone(all))
		for _, a := range asked {
			want := slices.ContainsFunc(all, func(p netip.Prefix) bool { return p.Contains(a) })
			if got := s.Contains(a); got != want {
				t.Fatalf("seed %d: %v in %v: %v, want %v", seed, a, all, got, want)
			}
		}
	}
}
