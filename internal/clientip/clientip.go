// Package clientip finds the address of a request's client behind trusted proxies. Middleware and package policy
// import it.
//
// Addresses that a client can forge do not count: a list of addresses is read from its end, as long as the proxy
// that wrote the entry is trusted.
package clientip

import (
	"cmp"
	"net/http"
	"net/netip"
	"strings"
)

const (
	defaultHeader = "X-Forwarded-For"
	maxHops       = 100
)

// Resolve returns the address of the client of a request that came over a connection from peer. If peer is not a
// trusted proxy, peer is the client. Otherwise, Resolve reads the list of addresses in the named header from its
// end, and returns the first address that is not trusted. If name is empty, the header is X-Forwarded-For. If an
// entry is not an address, or after a hundred entries, Resolve returns the last trusted address.
func Resolve(peer netip.Addr, header http.Header, trusted []netip.Prefix, name string) netip.Addr {
	if !Contains(trusted, peer) {
		return peer
	}
	addr := peer
	name = http.CanonicalHeaderKey(cmp.Or(name, defaultHeader))
	chain := hops{lines: header[name], forwarded: name == "Forwarded"}
	for range maxHops {
		hop, ok := chain.last()
		if !ok {
			return addr
		}
		addr = hop
		if !Contains(trusted, addr) {
			return addr
		}
	}
	return addr
}

// Peer reads the address of a connection's other end, with or without a port. It returns an IPv4 address as IPv4
// even if it is written as IPv6, and leaves out zones.
func Peer(remote string) (netip.Addr, bool) {
	if addr, host := Plain4(remote); host != "" {
		return netip.AddrFrom4(addr), true
	}
	return parseHop(remote)
}

// Local stands for peers without an address: processes at the other end of a Unix socket.
var Local = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Key returns the key of a limit for an address: an IPv4 address in full, or the network with the first ipv6Prefix bits
// of an IPv6 address. For an invalid address, it returns "unknown".
func Key(addr netip.Addr, ipv6Prefix int) string {
	switch {
	case !addr.IsValid():
		return "unknown"
	case addr.Is4():
		return addr.String()
	}
	network, err := addr.Prefix(ipv6Prefix)
	if err != nil {
		return addr.String()
	}
	return network.String()
}

// Plain4 reads a peer such as "192.0.2.1:80": an IPv4 address as [netip.Addr.String] writes it, and a port. It is a
// fast path, because most peers have this form. If the peer has another form, host is empty.
func Plain4(peer string) (addr [4]byte, host string) {
	field, start, n := 0, 0, 0
	for i := range len(peer) {
		c := peer[i]
		if c-'0' <= 9 {
			n = 10*n + int(c-'0')
			continue
		}
		if i == start || i > start+3 || n > 255 || i > start+1 && peer[start] == '0' || c != "...:"[field] {
			break
		}
		addr[field] = byte(n)
		if c == ':' {
			if isPort(peer[i:]) {
				host = peer[:i]
			}
			break
		}
		field, start, n = field+1, i+1, 0
	}
	return addr, host
}

// Contains reports whether one of the prefixes contains the address. IPv4 may be written as IPv6, both in prefixes
// and in the address.
func Contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap()
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// hops reads a chain of addresses from its end. If the header has several lines, they are one list.
type hops struct {
	lines     []string
	line      string // the unread rest of the present line
	open      bool   // whether there is a present line
	forwarded bool   // whether the entries are elements of RFC 7239; otherwise they are bare addresses
}

// last takes the last entry off the chain. It returns false if the chain is empty, or if the entry is not an
// address.
func (h *hops) last() (netip.Addr, bool) {
	if !h.open {
		n := len(h.lines)
		if n == 0 {
			return netip.Addr{}, false
		}
		h.line, h.lines, h.open = h.lines[n-1], h.lines[:n-1], true
	}
	entry := h.line
	if i := lastComma(entry, h.forwarded); i >= 0 {
		h.line, entry = entry[:i], entry[i+1:]
	} else {
		h.open = false
	}
	if h.forwarded {
		var ok bool
		if entry, ok = forwardedFor(entry); !ok {
			return netip.Addr{}, false
		}
	}
	return parseHop(entry)
}

// lastComma returns the index of the last comma, or -1. If the parameter quotes is true, commas in quoted strings
// do not count. lastComma searches from the end, so that an unclosed quote from a client cannot hide an entry that
// a proxy has appended.
func lastComma(s string, quotes bool) int {
	if !quotes {
		return strings.LastIndexByte(s, ',')
	}
	quoted := false
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == ',' && !quoted:
			return i
		case s[i] == '"':
			escapes := i - len(strings.TrimRight(s[:i], `\`))
			if escapes%2 == 0 {
				quoted = !quoted
			}
		}
	}
	return -1
}

// forwardedFor returns the value of the only "for" in an element such as for="[2001:db8::1]:4711";proto=https,
// without its quotes.
func forwardedFor(element string) (value string, ok bool) {
	found := 0
	for rest := element; strings.Trim(rest, " \t") != ""; {
		name, after, _ := strings.Cut(rest, "=")
		v, next, ok := cutValue(after)
		if !ok {
			return "", false
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
			value = v
			found++
		}
		rest = next
	}
	return value, found == 1
}

// cutValue takes a token or a quoted string, and the semicolon after it, off the beginning of s.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		return strings.TrimRight(value, " \t"), rest, !strings.Contains(value, `"`)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			between, rest, _ := strings.Cut(s[i+1:], ";")
			return b.String(), rest, strings.Trim(between, " \t") == ""
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// parseHop reads 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1] and
// [2001:db8::1]:80, with or without a zone.
func parseHop(s string) (netip.Addr, bool) {
	host := TrimBlanks(s)
	if len(host) > 100 {
		return netip.Addr{}, false // netip would copy the zone, which may be very long
	}
	bracketed := strings.HasPrefix(host, "[")
	var after string
	if bracketed {
		var closed bool
		if host, after, closed = strings.Cut(host[1:], "]"); !closed {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(host, ':'); i >= 0 && i == strings.LastIndexByte(host, ':') {
		host, after = host[:i], host[i:]
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || !isPort(after) || bracketed && addr.Is4() {
		return netip.Addr{}, false
	}
	return addr.WithZone("").Unmap(), true
}

// isPort reports whether s is empty, a colon and a number, or a colon and an obfuscated port of RFC 7239, such as
// :_gateway.
func isPort(s string) bool {
	if s == "" {
		return true
	}
	port := s[1:]
	if s[0] != ':' || port == "" {
		return false
	}
	if port[0] == '_' {
		return strings.Trim(port, "._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
	}
	for i := range len(port) {
		if port[i]-'0' > 9 {
			return false
		}
	}
	return len(port) <= 5
}

// TrimBlanks is strings.Trim(s, " \t"), but faster for the usual text that has no blanks at its ends.
func TrimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
