package policy

import (
	"encoding/base64"
	"net/netip"
	"strings"
	"unsafe"
)

// maxBody is the size in bytes of the largest body that is looked into.
const maxBody = 64 << 10

// extractor finds the values of parts in one request. It is scratch: use reset for the
// next request.
type extractor struct {
	r          *Request
	ipv6Prefix int // the bits of an IPv6 address that tell clients apart
	// route is the text of the pattern that matched, of the rule that is being looked
	// at; empty if it has no patterns.
	route string
	// garbled is set by value: see there.
	garbled bool
	// brokeOff says that the body did, so that no server can read it in any way.
	brokeOff bool

	client                       string
	key                          string // see apiKey
	keyState                     presence
	keyKnown                     bool
	query, cookies, body, claims lazyMembers
	buf                          []byte
}

// lazyMembers are read when the first part asks for them.
type lazyMembers struct {
	members
	read bool
}

func (m *lazyMembers) reset() {
	if !m.read {
		return
	}
	m.members.reset()
	m.read = false
}

func (x *extractor) reset(r *Request, ipv6Prefix int) {
	if cap(x.buf)+cap(x.body.names)+cap(x.query.names) > maxViewBuf {
		*x = extractor{}
	}
	x.r, x.ipv6Prefix = r, ipv6Prefix
	x.route, x.client, x.garbled, x.brokeOff, x.keyKnown = "", "", false, false, false
	x.buf = x.buf[:0]
	for _, m := range []*lazyMembers{&x.query, &x.cookies, &x.body, &x.claims} {
		m.reset()
	}
}

// clientIP returns the address, or the first address of its network.
func (x *extractor) clientIP() string {
	if x.client == "" && x.r.Client.IsValid() {
		start := len(x.buf)
		x.buf = maskClient(x.r.Client, x.ipv6Prefix).AppendTo(x.buf)
		x.client = unsafe.String(&x.buf[start], len(x.buf)-start)
	}
	return x.client
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
func (x *extractor) apiKey() (string, presence) {
	if !x.keyKnown {
		x.keyKnown = true
		x.key, x.keyState = x.findAPIKey()
	}
	return x.key, x.keyState
}

func (x *extractor) findAPIKey() (string, presence) {
	key, state := apiKeyHeader.header(x.r.Header)
	token, tokenState := x.bearer()
	switch {
	case state == garbled || tokenState == garbled:
		return "", garbled
	case state == absent:
		return token, tokenState
	case tokenState == present && token != key:
		return "", garbled
	}
	return key, present
}

func (x *extractor) bearer() (string, presence) {
	value, state := headerValue(x.r.Header["Authorization"])
	if state != present {
		return "", state
	}
	scheme, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "bearer") {
		// Some servers split at any space, or take the second of two credentials.
		if strings.Trim(scheme, tokenChars) != "" || strings.Contains(strings.ToLower(value), "bearer") {
			return "", garbled
		}
		return "", absent
	}
	token = strings.Trim(token, " \t")
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == ',' || r > '~' }) {
		return "", garbled // some servers end it there, or drop such a space
	}
	return known(token)
}

// name makes a value that somebody has typed comparable.
func (x *extractor) name(m member, state presence) (string, presence) {
	if state != present {
		return "", state
	}
	if m.kind == numberMember && !plainInteger(m.text) {
		return "", garbled // 12.0 may be 12 to a server
	}
	start := len(x.buf)
	buf, ok := appendName(x.buf, m.text)
	if !ok {
		return "", garbled
	}
	x.buf = buf
	return known(string(buf[start:]))
}

// plainInteger reports whether a number of JSON is the same to all servers: some have no more
// than the 53 bits of a double.
func plainInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return s != "-0" && len(digits) <= 15 && strings.Trim(digits, "0123456789") == ""
}

func (x *extractor) queryMembers() *members {
	m := &x.query
	if !m.read {
		m.read = true
		m.addQuery(x.r.RawQuery)
	}
	return &m.members
}

func (x *extractor) cookieMembers() *members {
	m := &x.cookies
	if !m.read {
		m.read = true
		for _, line := range x.r.Header["Cookie"] {
			m.addCookies(line)
		}
	}
	return &m.members
}

// bodyMembers returns the fields of the body, with those of the query.
func (x *extractor) bodyMembers() *members {
	m := &x.body
	if m.read {
		return &m.members
	}
	m.read = true
	if x.r.Body != nil {
		switch data, err := x.r.Body(maxBody); {
		case err != nil:
			m.garbled, x.brokeOff = true, true
		case data == nil:
			m.garbled = true // too large
		case len(data) > 0:
			m.addBody(data, x.r.Header)
		}
	}
	m.addQuery(x.r.RawQuery) // many servers look there as well, whatever the body is
	return &m.members
}

// claimMembers returns the claims of the bearer token, of which nobody has verified the signature.
func (x *extractor) claimMembers() *members {
	m := &x.claims
	if m.read {
		return &m.members
	}
	m.read = true
	token, state := x.bearer()
	if state != present {
		m.garbled = state == garbled
		return &m.members
	}
	_, rest, ok := strings.Cut(token, ".")
	body, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.IndexByte(signature, '.') >= 0 || len(body) > maxBody {
		m.garbled = true
		return &m.members
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(body, "="))
	m.garbled = err != nil || !m.addJSON(payload, false) || m.garbled
	return &m.members
}
