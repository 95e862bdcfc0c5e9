package pattern

import (
	"net/netip"
	"strings"
)

// maxHost is slightly more than the length of the longest name of a host.
const maxHost = 256

// Host returns a host in the form in which hosts are compared: in lower case, without port, brackets and the dot at
// the end. If a host is longer than any name, it returns only the end of the host, with which "*.example.com" is
// compared.
func Host(h string) string {
	if len(h) > maxHost {
		h = h[len(h)-maxHost:]
	}
	first, last := strings.IndexByte(h, ':'), strings.LastIndexByte(h, ':')
	switch {
	case strings.HasPrefix(h, "["):
		h, _, _ = strings.Cut(h[1:], "]")
		return ipv6(h)
	case first != last:
		return ipv6(h)
	case first >= 0:
		h = h[:first]
	}
	return strings.ToLower(strings.TrimSuffix(h, "."))
}

func ipv6(h string) string {
	if a, err := netip.ParseAddr(h); err == nil {
		return a.String()
	}
	return strings.ToLower(h)
}

// Method returns a method in capitals, because some servers convert it before they compare.
func Method(m string) string {
	if m == "" || m == "GET" {
		return "GET"
	}
	return strings.ToUpper(m)
}
