package policy

import (
	"net/netip"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice/internal/clientip"
	"github.com/sluicehq/sluice/policy/internal/fields"
	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// maxBody is the size in bytes of the largest body that is looked into.
const maxBody = 64 << 10

// extractor finds the values of parts in one request. It is scratch: use reset for the
// next request.
type extractor struct {
	r          *Request
	trusted    []netip.Prefix // proxies
	ipv6Prefix int            // the bits of an IPv6 address that tell clients apart
	// route is the text of the pattern that matched, of the rule that is being looked
	// at; empty if it has no patterns.
	route string
	// garbled is set by value: see there.
	garbled bool
	// brokeOff says that the body did, so that no server can read it in any way.
	brokeOff bool

	addr     netip.Addr // see address
	resolved bool       // addr is known

	hostName  string // see host
	hostKnown bool

	client                       string
	key                          string // see apiKey
	keyState                     fields.Presence
	keyKnown                     bool
	query, cookies, body, claims lazyMembers
	buf                          []byte
}

// maxKept is the most memory of an extractor that is kept from one request to the next.
const maxKept = 1 << 17

// lazyMembers are read when the first part asks for them.
type lazyMembers struct {
	fields.Members
	read bool
}

func (m *lazyMembers) reset() {
	if m.read {
		m.Members.Reset()
		m.read = false
	}
}

func (x *extractor) reset(r *Request, p *Policy) {
	if cap(x.buf)+x.body.Size()+x.query.Size() > maxKept {
		*x = extractor{}
	}
	x.r, x.trusted, x.ipv6Prefix = r, p.trusted, p.ipv6Prefix
	x.route, x.client, x.garbled, x.brokeOff, x.keyKnown, x.resolved, x.hostKnown = "", "", false, false, false, false, false
	x.buf = x.buf[:0]
	x.query.reset()
	x.cookies.reset()
	x.body.reset()
	x.claims.reset()
}

// host returns the host of the request as hosts are compared.
func (x *extractor) host() string {
	if !x.hostKnown {
		x.hostKnown, x.hostName = true, pattern.Host(x.r.Host)
	}
	return x.hostName
}

// clientIP returns the address, or the first address of its network.
func (x *extractor) clientIP() string {
	if x.client == "" && x.r.Peer.IsValid() {
		start := len(x.buf)
		x.buf = maskClient(x.address(), x.ipv6Prefix).AppendTo(x.buf)
		x.client = unsafe.String(&x.buf[start], len(x.buf)-start)
	}
	return x.client
}

// client returns the address of the client.
func (r *Request) client(trusted []netip.Prefix) netip.Addr {
	if len(trusted) == 0 {
		return r.Peer
	}
	return clientip.Resolve(r.Peer.Unmap().WithZone(""), r.Header, trusted, r.ForwardedHeader)
}

// maskClient returns what counts of an address: IPv4 as it is, also where it is written
// as IPv6, and of IPv6 the prefix. A zone does not count.
func maskClient(a netip.Addr, ipv6Prefix int) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		return a
	}
	p, err := a.Prefix(ipv6Prefix)
	if err != nil {
		return a
	}
	return p.Addr()
}

// apiKey is asked for by several rules, and looked up once.
func (x *extractor) apiKey() (string, fields.Presence) {
	if !x.keyKnown {
		x.keyKnown = true
		x.key, x.keyState = x.findAPIKey()
	}
	return x.key, x.keyState
}

func (x *extractor) findAPIKey() (string, fields.Presence) {
	key, state := apiKeyHeader.header(x.r.Header)
	token, tokenState := x.bearer()
	switch {
	case state == fields.Garbled || tokenState == fields.Garbled:
		return "", fields.Garbled
	case state == fields.Absent:
		return token, tokenState
	case tokenState == fields.Present && token != key:
		return "", fields.Garbled
	}
	return key, fields.Present
}

func (x *extractor) bearer() (string, fields.Presence) {
	value, state := fields.Header(x.r.Header["Authorization"])
	if state != fields.Present {
		return "", state
	}
	scheme, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "bearer") {
		// Some servers split at any space, or take the second of two credentials.
		if strings.Trim(scheme, tokenChars) != "" || strings.Contains(strings.ToLower(value), "bearer") {
			return "", fields.Garbled
		}
		return "", fields.Absent
	}
	token = strings.Trim(token, " \t")
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == ',' || r > '~' }) {
		return "", fields.Garbled // some servers end it there, or drop such a space
	}
	return fields.Value(token)
}

// name makes a value that somebody has typed comparable.
func (x *extractor) name(m fields.Member, state fields.Presence) (string, fields.Presence) {
	if state != fields.Present {
		return "", state
	}
	if m.IsNumber() && !plainInteger(m.Text) {
		return "", fields.Garbled // 12.0 may be 12 to a server
	}
	start := len(x.buf)
	buf, ok := fold.AppendName(x.buf, m.Text)
	if !ok {
		return "", fields.Garbled
	}
	x.buf = buf
	return fields.Value(string(buf[start:]))
}

// plainInteger reports whether a number of JSON is the same to all servers: some have no more
// than the 53 bits of a double.
func plainInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return s != "-0" && len(digits) <= 15 && strings.Trim(digits, "0123456789") == ""
}

func (x *extractor) queryMembers() *fields.Members {
	m := &x.query
	if !m.read {
		m.read = true
		m.AddQuery(x.r.RawQuery)
	}
	return &m.Members
}

func (x *extractor) cookieMembers() *fields.Members {
	m := &x.cookies
	if !m.read {
		m.read = true
		for _, line := range x.r.Header["Cookie"] {
			m.AddCookies(line)
		}
	}
	return &m.Members
}

// bodyMembers returns the fields of the body, with those of the query.
func (x *extractor) bodyMembers() *fields.Members {
	m := &x.body
	if m.read {
		return &m.Members
	}
	m.read = true
	if x.r.Body != nil {
		switch data, err := x.r.Body(maxBody); {
		case err != nil:
			m.Garble()
			x.brokeOff = true
		case data == nil:
			m.Garble() // too large
		case len(data) > 0:
			m.AddBody(data, x.r.Header)
		}
	}
	m.AddQuery(x.r.RawQuery) // many servers look there as well, whatever the body is
	return &m.Members
}

// claimMembers returns the claims of the bearer token, of which nobody has verified the signature.
func (x *extractor) claimMembers() *fields.Members {
	m := &x.claims
	if m.read {
		return &m.Members
	}
	m.read = true
	switch token, state := x.bearer(); state {
	case fields.Present:
		m.AddClaims(token)
	case fields.Garbled:
		m.Garble()
	}
	return &m.Members
}
