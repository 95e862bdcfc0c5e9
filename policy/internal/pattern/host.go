package pattern

import (
	"net/netip"
	"strings"
)

// maxHost is slightly more than the length of the longest host name.
const maxHost = 256

// Host returns a host in the form in which hosts are compared: in lower case, without a port, brackets or a final
// dot. Of a host longer than maxHost bytes, it returns only the end, which is enough to compare it with
// "*.example.com".
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

// Method returns a method in capitals, because some servers ignore the case of methods. An empty method is GET.
func Method(m string) string {
	if m == "" || m == "GET" {
		return "GET"
	}
	return strings.ToUpper(m)
}
