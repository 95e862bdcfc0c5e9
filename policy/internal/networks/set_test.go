package networks

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluicehq/sluice/internal/seed"
)

func networks(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func TestContains(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in      []netip.Prefix
		has, no []string
	}{
		{nil, nil, []string{"0.0.0.0", "::", "10.0.0.1"}},
		{networks("0.0.0.0/0"), []string{"0.0.0.0", "255.255.255.255"}, []string{"::", "::ffff:10.0.0.1"}},
		{networks("::/0"), []string{"::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::1%eth0"}, []string{"0.0.0.0"}},
		{networks("10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32"), []string{"10.0.0.0", "10.255.255.255", "192.0.2.7"}, []string{"9.255.255.255", "11.0.0.0", "192.0.2.6", "192.0.2.8"}},
		{networks("2001:db8::/32", "2001:db9::7/128", "2001:dba::/64"),
			[]string{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::7", "2001:dba::ffff:ffff:ffff:ffff"},
			[]string{"2001:db7:ffff::", "2001:db9::", "2001:db9::6", "2001:db9::8", "2001:dba:0:1::"}},
		{networks("10.0.0.0/9", "10.128.0.0/9"), []string{"10.127.255.255", "10.128.0.0"}, []string{"11.0.0.0"}},
	} {
		s := New(tt.in)
		for _, a := range tt.has {
			if !s.Contains(netip.MustParseAddr(a)) {
				t.Errorf("%v have no %s", tt.in, a)
			}
		}
		for _, a := range tt.no {
			if s.Contains(netip.MustParseAddr(a)) {
				t.Errorf("%v have %s", tt.in, a)
			}
		}
	}
	if New(networks("10.0.0.0/8")).Contains(netip.Addr{}) {
		t.Error("no address is in a network")
	}
}

// generator makes networks and addresses that meet often.
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

// A set has what one network after the other has, at their edges above all.
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

// BenchmarkContains looks addresses up in 100,000 networks, half of them in one.
func BenchmarkContains(b *testing.B) {
	const n = 100_000
	for _, family := range []string{"IPv4", "IPv6"} {
		b.Run(family, func(b *testing.B) {
			g := newGenerator(1)
			all, asked := make([]netip.Prefix, n), make([]netip.Addr, 1<<16)
			for i := range all {
				all[i] = spread(g, family)
			}
			for i := range asked {
				if asked[i] = spread(g, family).Addr(); i%2 == 0 {
					asked[i] = lastOf(all[g.IntN(n)])
				}
			}
			s, found, i := New(all), 0, 0
			for b.Loop() {
				if s.Contains(asked[i%len(asked)]) {
					found++
				}
				i++
			}
			if found == 0 || found == i && i > 1000 {
				b.Errorf("%d of %d found", found, i)
			}
		})
	}
}

// spread returns a network as lists of abusers have them, anywhere.
func spread(g generator, family string) netip.Prefix {
	var b [16]byte
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	if family == "IPv4" {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(b[:])), 22+g.IntN(11)).Masked()
	}
	b[0] = 0x20
	return netip.PrefixFrom(netip.AddrFrom16(b), 32+g.IntN(33)).Masked()
}
