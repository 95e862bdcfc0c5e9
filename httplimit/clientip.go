package httplimit

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// ClientIP finds the address that a request comes from.
//
// The zero value believes nobody: the address is the one that the connection comes from
// (RemoteAddr). That is right where clients connect directly. Behind a proxy it is the
// proxy's address, and all clients share one limit until the proxy is in Trusted.
//
// A header with addresses is a list to which each proxy appends whom it has seen, and
// whose beginning the client can write as it likes. So it is read from its end, and only
// for as long as whoever wrote an entry is trusted: the result is the first address,
// going backwards, that is not a trusted proxy. What is before it is never looked at.
//
// An entry that is not an address ends the way: the result is then the trusted proxy
// that has passed it on, so that those who send garbage share one limit, and none of
// them gets a fresh one. The same holds after 100 entries.
type ClientIP struct {
	// Trusted are the addresses of the proxies in front of this server. Trust whole
	// networks only where every machine in them is yours: a client with an address in
	// Trusted can choose what it wants to be.
	Trusted []netip.Prefix
	// Header is the one header that these proxies write, X-Forwarded-For if empty.
	// "Forwarded" is read as in RFC 7239, every other name as a list of addresses, such
	// as X-Real-IP with its single one. No other header is looked at: proxies pass on
	// unchanged what they do not write themselves, and so a client can send it.
	Header string
	// IPv6Prefix is how many bits of an IPv6 address [ClientIP.Key] keeps, 1 to 128,
	// and 64 if zero: one customer usually has all the addresses of a /64.
	IPv6Prefix int
}

const (
	defaultHeader = "X-Forwarded-For"
	maxHops       = 100
)

// local stands for peers without an address: processes at the end of a Unix socket.
var local = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Addr returns the address, without a zone, and IPv4 as IPv4 also where it was written
// as IPv6 (::ffff:192.0.2.1). The peer of a Unix socket counts as 127.0.0.1. The result
// is the zero Addr only if r.RemoteAddr has been set to something else.
func (c ClientIP) Addr(r *http.Request) netip.Addr {
	return clientAddr(r, c.Trusted, c.Header)
}

// Key returns the address as the key of a limit: "192.0.2.1", or "2001:db8::/64" for
// the network of an IPv6 address. Requests without an address share the key "unknown".
func (c ClientIP) Key(r *http.Request) string {
	if len(c.Trusted) == 0 {
		if _, host := plain4(r.RemoteAddr); host != "" {
			return host
		}
	}
	addr := c.Addr(r)
	switch {
	case !addr.IsValid():
		return "unknown"
	case addr.Is4():
		return addr.String()
	}
	network, err := addr.Prefix(cmp.Or(c.IPv6Prefix, 64))
	if err != nil {
		return addr.String()
	}
	return network.String()
}

// Trusts reports whether addr is in one of the networks of Trusted. IPv4 may be written as
// IPv6 in both.
func (c ClientIP) Trusts(addr netip.Addr) bool { return contains(c.Trusted, addr) }

// plain4 reads "192.0.2.1:80": an IPv4 address as [netip.Addr.String] writes it, and a
// port. Most peers look like that, and need no other way to be read. The host is empty if
// this one does not.
func plain4(peer string) (addr [4]byte, host string) {
	i := 0
	for field := range addr {
		start, n := i, 0
		for i < len(peer) && i < start+3 && peer[i]-'0' <= 9 {
			n = 10*n + int(peer[i]-'0')
			i++
		}
		if i == start || i == len(peer) || n > 255 || i > start+1 && peer[start] == '0' || peer[i] != "...:"[field] {
			return addr, ""
		}
		addr[field] = byte(n)
		i++
	}
	if !isPort(peer[i-1:]) {
		return addr, ""
	}
	return addr, peer[:i-1]
}

func clientAddr(r *http.Request, trusted []netip.Prefix, header string) netip.Addr {
	addr := peer(r)
	if !contains(trusted, addr) {
		return addr
	}
	name := http.CanonicalHeaderKey(cmp.Or(header, defaultHeader))
	chain := hops{lines: r.Header[name], forwarded: name == "Forwarded"}
	for range maxHops {
		hop, ok := chain.last()
		if !ok {
			return addr
		}
		addr = hop
		if !contains(trusted, addr) {
			return addr
		}
	}
	return addr
}

// peer returns the other end of the connection.
func peer(r *http.Request) netip.Addr {
	if addr, host := plain4(r.RemoteAddr); host != "" {
		return netip.AddrFrom4(addr)
	}
	if addr, ok := parseHop(r.RemoteAddr); ok {
		return addr
	}
	if a, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); a != nil && a.Network() == "unix" {
		return local
	}
	return netip.Addr{}
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
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

// hops reads a chain of addresses from its end: several lines of a header are one list.
type hops struct {
	lines     []string
	line      string // what is left of the line being read
	open      bool   // there is such a line
	forwarded bool   // RFC 7239, else bare addresses
}

// last takes the last entry off the chain. It is not ok if there is none, or if it is
// not an address.
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

// lastComma returns the index of the last comma, or -1; with quotes, of the last one
// outside of quoted strings. It looks from the end, so that an open quote that a client
// has sent does not swallow what a proxy has appended.
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

// forwardedFor returns the value of the one "for" in an element such as
// for="[2001:db8::1]:4711";proto=https, without its quotes.
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

// cutValue takes a token or a quoted string off s, and the semicolon behind it.
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
	host := trimBlanks(s)
	if len(host) > 100 {
		return netip.Addr{}, false // do not copy a megabyte of zone
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

// isPort reports whether s is nothing, a colon and a number, or a colon and one of the
// made-up names that RFC 7239 allows, such as :_gateway.
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

// trimBlanks is strings.Trim(s, " \t") for what hardly ever has any.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}
