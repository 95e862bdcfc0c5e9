package policy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"unsafe"

	"golang.org/x/net/http/httpguts"
)

// part is a part of a key: what a rule tells requests apart by.
type part struct {
	kind partKind
	name string // of the header, cookie, …; or the text of a constant
	text string // as written
}

type partKind uint8

const (
	clientIP partKind = iota
	headerPart
	apiKey
	cookiePart
	queryPart
	jwtPart
	bodyPart
	routePart
	hostPart
	methodPart
	constPart
)

// partKinds has the names of the parts, and what follows the colon, if anything does.
//
//   - client_ip is the address of the client, for IPv6 that of its network
//   - header:NAME is the value of a header
//   - api_key is X-API-Key, or the token of "Authorization: Bearer". It is a name that
//     somebody before or behind us has to verify. With both and different ones it is
//     garbled: then name the header that counts
//   - cookie:NAME and query:NAME
//   - jwt:CLAIM is a string, number or boolean in the payload of the bearer token. Its
//     signature is NOT verified: use it only behind something that has done so
//   - body:FIELD is a field of a JSON object or a form of at most 64 KiB
//   - route is the text of the pattern of the rule that matched
//   - host and method
//   - const:TEXT is the text
//
// Values of a query and a body are names that people type, so they are compared without
// spaces around them, case and accents: see appendName.
var partKinds = [...]struct{ name, arg string }{
	clientIP:   {"client_ip", ""},
	headerPart: {"header", "NAME"},
	apiKey:     {"api_key", ""},
	cookiePart: {"cookie", "NAME"},
	queryPart:  {"query", "NAME"},
	jwtPart:    {"jwt", "CLAIM"},
	bodyPart:   {"body", "FIELD"},
	routePart:  {"route", ""},
	hostPart:   {"host", ""},
	methodPart: {"method", ""},
	constPart:  {"const", "TEXT"},
}

// maxBody is the size in bytes of the largest body that is looked into.
const maxBody = 64 << 10

// String returns what parsePart has read.
func (p *part) String() string { return p.text }

func parsePart(s string) (part, error) {
	name, arg, colon := strings.Cut(s, ":")
	for kind, k := range partKinds {
		if k.name != name {
			continue
		}
		switch {
		case k.arg == "" && colon:
			return part{}, fmt.Errorf("key part %.60q: %s stands alone, without a colon", s, name)
		case k.arg != "" && arg == "":
			return part{}, fmt.Errorf("key part %.60q: write it as %s:%s", s, name, k.arg)
		}
		p := part{partKind(kind), arg, s}
		return p, p.checkName()
	}
	return part{}, fmt.Errorf("unknown key part %.60q: use one of %s", s, knownParts())
}

func knownParts() string {
	var all []string
	for _, k := range partKinds {
		if k.arg != "" {
			k.name += ":" + k.arg
		}
		all = append(all, k.name)
	}
	return strings.Join(all, ", ")
}

// checkName checks the name, and makes that of a header canonical.
func (p *part) checkName() error {
	wrong := ""
	switch {
	case strings.ContainsFunc(p.name, hidden):
		wrong = "contains characters that do not show"
	case strings.TrimSpace(p.name) != p.name:
		wrong = "has spaces around it"
	case p.kind == headerPart || p.kind == cookiePart:
		if !httpguts.ValidHeaderFieldName(p.name) {
			wrong = "contains characters that such a name cannot have"
		}
	}
	if p.kind == headerPart {
		if p.name = http.CanonicalHeaderKey(p.name); p.name == "Host" {
			wrong = `is not to be had as a header: write "host"`
		}
	}
	if wrong != "" {
		return fmt.Errorf("key part %.60q: %.60q %s", p.text, p.name, wrong)
	}
	return nil
}

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

	client                       string
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
	clear(m.list)
	*m = lazyMembers{members: members{list: m.list[:0]}}
}

func (x *extractor) reset(r *Request, ipv6Prefix int) {
	if cap(x.buf) > maxViewBuf || cap(x.body.list)+cap(x.query.list)+cap(x.cookies.list) > maxViewBuf/32 {
		*x = extractor{}
	}
	x.r, x.ipv6Prefix = r, ipv6Prefix
	x.route, x.client, x.garbled = "", "", false
	x.buf = x.buf[:0]
	for _, m := range []*lazyMembers{&x.query, &x.cookies, &x.body, &x.claims} {
		m.reset()
	}
}

// value returns the value of the part in the request of x, which lives until x is reset.
// It reports false if the part is missing, and x.garbled then says which way. A part that
// is absent or empty is simply not there. A part that is garbled is there, but servers may
// differ in what they read: it is repeated with different values, malformed, in
// bytes that are not UTF-8, in a body that is compressed, too large or of an unknown
// type. Nobody may get past a rule that way: where an absent part makes a rule be
// skipped, a garbled one must not.
func (p *part) value(x *extractor) (string, bool) {
	v, state := p.find(x)
	x.garbled = state == garbled
	return v, state == present
}

func (p *part) find(x *extractor) (string, presence) {
	switch p.kind {
	case clientIP:
		return known(x.clientIP())
	case headerPart:
		return headerValue(x.r.Header[p.name])
	case apiKey:
		return x.apiKey()
	case cookiePart:
		m, state := x.cookieMembers().get(p.name)
		return m.text, state
	case queryPart:
		return x.name(x.queryMembers().get(p.name))
	case jwtPart:
		m, state := x.claimMembers().get(p.name)
		return m.text, state
	case bodyPart:
		return x.name(x.bodyMembers().get(p.name))
	case routePart:
		return known(x.route)
	case hostPart:
		return known(normalHost(x.r.Host))
	case methodPart:
		if m := normalMethod(x.r.Method); isMethod(m) {
			return m, present
		}
		return "", garbled // a name that anybody can make up
	}
	return p.name, present
}

// known is the presence of a value that is either there or empty.
func known(v string) (string, presence) {
	if v == "" {
		return "", absent
	}
	return v, present
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
// as IPv6, and of IPv6 the prefix.
func maskClient(a netip.Addr, ipv6Prefix int) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a
	}
	p, err := a.Prefix(ipv6Prefix)
	if err != nil {
		return a
	}
	return p.Addr()
}

func (x *extractor) apiKey() (string, presence) {
	key, state := headerValue(x.r.Header["X-Api-Key"])
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
		return "", absent
	}
	token = strings.Trim(token, " \t")
	if strings.ContainsAny(token, " \t,") {
		return "", garbled
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

// canonical returns a value of the part that is written in a policy as value returns it.
func (p *part) canonical(v string) string {
	switch p.kind {
	case clientIP:
		if a, err := netip.ParseAddr(v); err == nil {
			return a.Unmap().String()
		}
	case hostPart:
		return normalHost(v)
	case queryPart, bodyPart:
		if name, ok := appendName(nil, v); ok {
			return string(name)
		}
	}
	return v
}

func plainInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return s != "-0" && strings.Trim(digits, "0123456789") == ""
}

func (x *extractor) queryMembers() *members {
	m := &x.query
	if !m.read {
		m.read = true
		m.addForm(x.r.RawQuery)
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

// bodyMembers returns the fields of the body. Without a body they are those of the query.
func (x *extractor) bodyMembers() *members {
	m := &x.body
	if m.read {
		return &m.members
	}
	m.read = true
	if x.r.Body == nil {
		m.addForm(x.r.RawQuery)
		return &m.members
	}
	switch data := x.r.Body(maxBody); {
	case data == nil:
		m.garbled = true // too large
	case len(data) == 0:
		m.addForm(x.r.RawQuery)
	default:
		m.members = readBody(data, x.r.Header, x.r.RawQuery)
	}
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
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(parts[1]) > maxBody {
		m.garbled = true
		return &m.members
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	m.garbled = err != nil || !m.addJSON(payload) || m.garbled
	return &m.members
}
