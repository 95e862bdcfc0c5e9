package policy

import (
	"errors"
	"fmt"
)

// normal returns the value that an override names as [part.value] returns it, or an
// error if no request can have it.
func (p *part) normal(v string, ipv6Prefix int) (string, error) {
	if p.kind != clientIP {
		if v = p.canonical(v); v == "" {
			return "", errors.New("no request has such a value")
		}
		return v, nil
	}
	network, err := parsePrefix(v)
	if err != nil {
		return "", fmt.Errorf("%s is not an address", quote(v))
	}
	a := network.Addr()
	bits := a.BitLen()
	if a.Is6() {
		bits = ipv6Prefix
	}
	if network.Bits() != bits && !network.IsSingleIP() {
		return "", fmt.Errorf("%s is a network, and addresses are told apart by their first %d bits", quote(v), bits)
	}
	return maskClient(a, ipv6Prefix).String(), nil
}
