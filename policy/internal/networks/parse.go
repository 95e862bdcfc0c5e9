package networks

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluicehq/sluice/internal/spelling"
)

// Parse reads an address or a CIDR. An IPv4 address in IPv6 form becomes an IPv4 address.
func Parse(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, errors.New("neither an address nor a CIDR")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// HostBits returns an error message and a hint if v is an address with a prefix length, and the address has bits set
// after the prefix. Otherwise both results are empty.
func HostBits(v string) (wrong, hint string) {
	if whole, err := netip.ParsePrefix(v); err == nil && whole != whole.Masked() {
		return spelling.Quote(v) + " is an address with the prefix length of a network",
			fmt.Sprintf("write %q for the network, or %q for the address", whole.Masked(), whole.Addr())
	}
	return "", ""
}
