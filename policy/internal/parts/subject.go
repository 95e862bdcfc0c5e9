package parts

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/networks"
	"github.com/sluicehq/sluice/policy/internal/table"
)

// AddAny adds "*" for a part for which the subject of an override has no value.
func (k *Keys) AddAny() { k.AddWritten(anyValue) }

// AddNamed adds the value of part i in the subject of an override or a tier. If the value is a network, AddNamed
// adds its first address, and sets the network of the shape.
func (k *Keys) AddNamed(p *Part, i int, v string, ipv6Prefix int, of *table.Shape) error {
	if first, n, many := p.network(i, v, ipv6Prefix); many {
		of.Network = n
		k.Add(first)
		if wrong, hint := networks.HostBits(v); wrong != "" {
			return fmt.Errorf("%s: %s", wrong, hint)
		}
		return nil
	}
	v, err := p.Normal(v, ipv6Prefix)
	k.Add(v)
	return err
}

// network returns the first address of the network v as a text, and the network in the form of a shape. It returns
// false if v is not a network, or if all of its addresses have the same key.
func (p *Part) network(i int, v string, ipv6Prefix int) (first string, n table.Network, ok bool) {
	if !p.IsAddress() {
		return "", table.Network{}, false
	}
	net, err := networks.Parse(v)
	if err != nil {
		return "", table.Network{}, false
	}
	n = table.Network{Part: i + 1, Six: net.Addr().Is6(), Bits: net.Bits()}
	if n.Six && n.Bits >= ipv6Prefix || net.IsSingleIP() {
		return "", table.Network{}, false
	}
	return net.Addr().String(), n, true
}

// Normal converts a value in a document to the form of [Part.Value]. It returns an error if no request can have the
// value.
func (p *Part) Normal(v string, ipv6Prefix int) (string, error) {
	if !p.IsAddress() {
		if v = p.Canonical(v); v == "" {
			return "", errors.New("no request has such a value")
		}
		return v, nil
	}
	network, err := networks.Parse(v)
	if err != nil {
		return "", fmt.Errorf("%s is not an address such as 192.0.2.7", spelling.Quote(v))
	}
	if wrong, hint := networks.HostBits(v); wrong != "" {
		return "", fmt.Errorf("%s: %s", wrong, hint)
	}
	a := network.Addr()
	bits := a.BitLen()
	if a.Is6() {
		bits = ipv6Prefix
	}
	switch {
	case network.Bits() < bits:
		return "", fmt.Errorf("%s is a network: name one address (overrides and tiers can name a network: see \"sluice override set\")", spelling.Quote(v))
	case network.Bits() > bits && !network.IsSingleIP():
		return "", fmt.Errorf("%s is a network within one subject, because only the first %d bits of an address count: name one address, or the network with /%d", spelling.Quote(v), bits, bits)
	}
	return MaskClient(a, ipv6Prefix).String(), nil
}

// Subject returns the text of the key's subject for a shape of a [table.Table]. It is valid until the key changes.
func (k *Keys) Subject(of *table.Shape) []byte {
	if of.Network.Part == 0 {
		return k.general(of.Exact)
	}
	return k.within(of.Exact, of.Network)
}

// general returns the subject. If the bit of a value is 0 in exact, "*" replaces the value. The result is valid until
// the key changes.
func (k *Keys) general(exact uint32) []byte {
	if exact == 1<<k.count-1 {
		return k.text[k.rest:]
	}
	return k.rewritten(exact, -1, nil)
}

// rewritten returns the subject like general, but with a text in place of the value of one part.
func (k *Keys) rewritten(exact uint32, part int, text []byte) []byte {
	end := len(k.text)
	for i, v := range k.Values() {
		k.text = append(k.text, '/')
		switch {
		case i == part:
			k.text = append(k.text, text...)
		case exact&(1<<i) == 0:
			k.text = append(k.text, anyValue...)
		default:
			k.text = append(k.text, v...)
		}
	}
	general := k.text[end:]
	k.text = k.text[:end]
	return general
}

// within returns the subject like general, but replaces the address by the first address of its network of n.Bits
// bits. It returns nil, which matches no subject, if the part is not an address of n's family.
func (k *Keys) within(exact uint32, n table.Network) []byte {
	a, err := netip.ParseAddr(k.Values()[n.Part-1])
	if err != nil || a.Is6() != n.Six {
		return nil // the part is missing, or an address of the other family
	}
	p, err := a.Prefix(n.Bits)
	if err != nil {
		return nil
	}
	var text [48]byte
	return k.rewritten(exact, n.Part-1, p.Addr().AppendTo(text[:0]))
}
