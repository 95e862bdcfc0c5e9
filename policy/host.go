package policy

import (
	"net/netip"
	"strings"
)

// PlainHost reports whether all servers read the same host: a name or an address, with a
// port or without, or none at all. Of "a:80:80" some take the host "a", and some none, and
// of the dots behind "a.." some take off one and some all. Doors refuse a request with another.
func PlainHost(s string) bool {
	if literal, found := strings.CutPrefix(s, "["); found {
		inner, rest, closed := strings.Cut(literal, "]")
		if a, err := netip.ParseAddr(inner); err != nil || !a.Is6() || a.Zone() != "" || !closed {
			return false
		}
		return rest == "" || rest[0] == ':' && digits(rest[1:])
	}
	before := byte('.')
	for i := range len(s) {
		c := s[i]
		if !inHost[c] {
			return c == ':' && digits(s[i+1:])
		}
		if c == '.' && before == '.' {
			return false
		}
		before = c
	}
	return true
}

// inHost are the characters of names and of IPv4 addresses.
var inHost = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")

func characters(all string) (t [256]bool) {
	for i := range len(all) {
		t[all[i]] = true
	}
	return t
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }
