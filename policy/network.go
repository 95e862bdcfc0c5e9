package policy

import (
	"fmt"
	"net/netip"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/table"
)

// network returns the text of the first address of the network that a value names, and its
// length; ok is false if v is no network, or one whose addresses have one key.
func (p *part) network(i int, v string, ipv6Prefix int) (first string, n table.Network, ok bool) {
	if p.kind != clientIP {
		return "", table.Network{}, false
	}
	net, err := parsePrefix(v)
	if err != nil {
		return "", table.Network{}, false
	}
	n = table.Network{Part: i + 1, Six: net.Addr().Is6(), Bits: net.Bits()}
	if n.Six && n.Bits >= ipv6Prefix || net.IsSingleIP() {
		return "", table.Network{}, false
	}
	return net.Addr().String(), n, true
}

// checkHostBits returns what is wrong with an address that has the length of a network, and what
// to write; else nothing.
func checkHostBits(v string) (wrong, hint string) {
	if whole, err := netip.ParsePrefix(v); err == nil && whole != whole.Masked() {
		return spelling.Quote(v) + " is an address and the length of a network",
			fmt.Sprintf("write %q for the network, or %q for the address", whole.Masked(), whole.Addr())
	}
	return "", ""
}

// subjectOf returns what the subjects of a shape are found by. It is only valid until the key
// goes on.
func (k *keyText) subjectOf(of *table.Shape) []byte {
	if of.Network.Part == 0 {
		return k.general(of.Exact)
	}
	return k.within(of.Exact, of.Network)
}

// within is general with the first address of a network of that length in place of the address.
// It returns nil, which is no subject, if the address cannot be in one.
func (k *keyText) within(exact uint32, n table.Network) []byte {
	a, err := netip.ParseAddr(k.values[n.Part-1])
	if err != nil || a.Is6() != n.Six {
		return nil // the part is missing, or of the other family
	}
	p, err := a.Prefix(n.Bits)
	if err != nil {
		return nil
	}
	var text [48]byte
	return k.rewritten(exact, n.Part-1, p.Addr().AppendTo(text[:0]))
}
