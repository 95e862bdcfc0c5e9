package httplimit

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"

	"github.com/sluicehq/sluice/internal/clientip"
)

// ClientIP finds the address that a request comes from.
//
// The zero value trusts no proxy: the address is that of the connection (RemoteAddr). Use it if clients connect
// directly. Behind a proxy, the address is the proxy's, and all clients share one limit until the proxy is in
// Trusted.
//
// A header with addresses is a list to which each proxy appends its peer. The client can set the start of the list
// freely. So the list is read from its end, and only as long as the writer of an entry is trusted: the result is
// the first address, going backwards, that is not a trusted proxy. The entries before it are never read.
//
// An entry that is not an address ends the search. The result is then the trusted proxy that passed the entry on,
// so that all clients that send garbage share one limit, and none of them gets a fresh one. The search also ends
// after 100 entries.
type ClientIP struct {
	// Trusted are the addresses of the proxies in front of this server. Trust a whole network only if every machine
	// in it is yours: a client with an address in Trusted can choose any address.
	Trusted []netip.Prefix
	// Header is the header that these proxies write, X-Forwarded-For if empty. "Forwarded" is read as in RFC 7239, and
	// every other header as a list of addresses, such as X-Real-IP with its single address. Only this one header is
	// read: proxies pass on, unchanged, the headers that they do not write themselves, so a client could have sent
	// those.
	Header string
	// IPv6Prefix is the number of bits of an IPv6 address that [ClientIP.Key] keeps, from 1 to 128. Zero means 64:
	// one customer usually has all the addresses of a /64.
	IPv6Prefix int
}

// Addr returns the address, without a zone. IPv4 in its IPv6 form (::ffff:192.0.2.1) is returned as IPv4. The peer
// of a Unix socket counts as 127.0.0.1. The result is the zero Addr only if r.RemoteAddr has been set to a text
// that is not an address.
func (c ClientIP) Addr(r *http.Request) netip.Addr {
	return clientip.Resolve(peer(r), r.Header, c.Trusted, c.Header)
}

// Key returns the address as the key of a limit: "192.0.2.1", or "2001:db8::/64" for
// the network of an IPv6 address. Requests without an address share the key "unknown".
func (c ClientIP) Key(r *http.Request) string {
	if len(c.Trusted) == 0 {
		if _, host := clientip.Plain4(r.RemoteAddr); host != "" {
			return host
		}
	}
	return clientip.Key(c.Addr(r), cmp.Or(c.IPv6Prefix, 64))
}

// Trusts reports whether addr is in one of the networks of Trusted. Both addr and Trusted may have IPv4 addresses
// in their IPv6 form.
func (c ClientIP) Trusts(addr netip.Addr) bool { return clientip.Contains(c.Trusted, addr) }

// peer returns the address of the other end of the connection.
func peer(r *http.Request) netip.Addr {
	if addr, ok := clientip.Peer(r.RemoteAddr); ok {
		return addr
	}
	if a, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); a != nil && a.Network() == "unix" {
		return clientip.Local
	}
	return netip.Addr{}
}
