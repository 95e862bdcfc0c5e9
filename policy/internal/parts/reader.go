package parts

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/bytesize"
	"github.com/sluicehq/sluice/internal/clientip"
	"github.com/sluicehq/sluice/policy/internal/fields"
	"github.com/sluicehq/sluice/policy/internal/fold"
	"github.com/sluicehq/sluice/policy/internal/paths"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

// DefaultBodyLimit is the body_limit of policies that do not set it, in bytes.
const DefaultBodyLimit = 8 << 20

// ErrBodyMemory is the error of a Body that cannot be read because the bodies of other requests take up the memory
// for bodies.
var ErrBodyMemory = errors.New("policy: the memory for bodies is used up by other requests")

// ErrBodyPart is returned by Body if the body is or may be incomplete.
var ErrBodyPart = errors.New("policy: the body is incomplete")

// These are the values of [Reader.BodyFault]. Each names the thing that a request lacks if rules cannot use its
// body. SmallerBody and MatchingHeader are prefixes.
const (
	SmallerBody    = "a body of at most " // followed by the size
	WholeBody      = "the whole of its body"
	BodyMemory     = "memory for its body"
	PlainBody      = "an uncompressed body"
	MatchingHeader = "a field that matches its body: " // followed by the name of the header field
)

// Request is the source of parts: it has fields of the policy.Request, and settings of the policy.
type Request struct {
	Method, Host, RawQuery string
	Path                   string // escaped; empty if it is unknown
	Peer                   netip.Addr
	Header                 http.Header
	ForwardedHeader        string
	Client                 netip.Addr // the zero value if unknown
	Body                   func(limit int64) ([]byte, error)
	BodyLimit              int64 // DefaultBodyLimit if zero
	Attributes             map[string]string
	TLSFingerprint         string
	// Recorded, if not nil, returns the recorded reading of the part with an ID, or false if the part has to be
	// read from the request.
	Recorded func(id string) (Reading, bool)

	Trusted    []netip.Prefix // the trusted proxies
	IPv6Prefix int            // the number of bits of an IPv6 address that identify a client
}

// Reader finds the values of parts in one request at a time, and reuses its memory for the next request: see Reset.
type Reader struct {
	request Request
	progress

	addr      netip.Addr // see Address
	hostName  string     // see Host
	path      string     // see findPath
	pathState fields.Presence
	readings  paths.Buffer
	key       string // see apiKey
	keyState  fields.Presence

	query, cookies, body, claims lazyMembers
	buf                          []byte
}

// progress describes which parts of the request have been read.
type progress struct {
	// Route is the Key of the matching pattern of the current rule; empty if the rule has no patterns.
	Route string
	state fields.Presence // the state of the part that was read last
	// BrokeOff is set if the body ended early, so that no server can read it.
	BrokeOff bool
	// Unread is set if a part with a recorded reading of Unread was requested.
	Unread bool

	fault   string // see BodyFault
	data    []byte // the body, if it was read whole
	fetched bool   // whether the body has been requested
	client  string // see findClientIP

	resolved, hostKnown, pathKnown, keyKnown bool // whether addr, hostName, path and key are set
}

// maxKept is the most memory, in bytes, that a reader keeps from one request to the next.
const maxKept = 1 << 17

// lazyMembers has members that are read when a part first needs them.
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

// Reset prepares x for another request, and returns the Request for the caller to fill in.
func (x *Reader) Reset() *Request {
	if cap(x.buf)+x.body.Size()+x.query.Size() > maxKept {
		*x = Reader{}
	}
	x.progress = progress{}
	x.buf = x.buf[:0]
	x.query.reset()
	x.cookies.reset()
	x.body.reset()
	x.claims.reset()
	return &x.request
}

// Forget drops all references to the request.
func (x *Reader) Forget() {
	x.request, x.data = Request{}, nil
	x.body.reset() // its members refer to the body
}

// Client returns the address of the client of a request from peer, using the header that trusted proxies set.
func Client(peer netip.Addr, h http.Header, trusted []netip.Prefix, forwardedHeader string) netip.Addr {
	if len(trusted) == 0 {
		return peer
	}
	return behindProxy(peer, h, trusted, forwardedHeader)
}

func behindProxy(peer netip.Addr, h http.Header, trusted []netip.Prefix, forwardedHeader string) netip.Addr {
	return clientip.Resolve(peer.Unmap().WithZone(""), h, trusted, forwardedHeader)
}

// Address returns the address of the client, without a zone. An IPv4 address in IPv6 form is returned as IPv4.
func (x *Reader) Address() netip.Addr {
	if !x.resolved {
		x.addr, x.resolved = x.request.address(), true
	}
	return x.addr
}

func (r *Request) address() netip.Addr {
	a := r.Client
	if !a.IsValid() {
		a = Client(r.Peer, r.Header, r.Trusted, r.ForwardedHeader)
	}
	if a = a.Unmap(); a.Is6() {
		a = a.WithZone("")
	}
	return a
}

// Host returns the host of the request in the form in which hosts are compared: see [pattern.Host].
func (x *Reader) Host() string {
	if !x.hostKnown {
		x.hostKnown, x.hostName = true, pattern.Host(x.request.Host)
	}
	return x.hostName
}

// Garbled reports whether the part that [Part.Value] read last is garbled.
func (x *Reader) Garbled() bool { return x.state == fields.Garbled }

// BodyRead reports whether the fields of the body have been read.
func (x *Reader) BodyRead() bool { return x.body.read }

// BodyLimit returns the size in bytes of the largest body that is read.
func (x *Reader) BodyLimit() int64 { return cmp.Or(x.request.BodyLimit, DefaultBodyLimit) }

// BodyFault returns the thing that the request lacks, such as [BodyMemory], if no rule can use its body, not even a
// rule that accepts doubtful values. It returns "" if the parts that were read so far have not shown such a fault.
func (x *Reader) BodyFault() string { return x.fault }

// fetch returns the body, or nil if the whole body could not be read. It calls Body at most once.
func (x *Reader) fetch() []byte {
	if x.fetched {
		return x.data
	}
	x.fetched = true
	if x.request.Body == nil {
		x.data = []byte{}
		return x.data
	}
	data, err := x.request.Body(x.BodyLimit())
	switch {
	case errors.Is(err, ErrBodyMemory):
		x.fault = BodyMemory
	case errors.Is(err, ErrBodyPart):
		x.fault = WholeBody
	case err != nil:
		x.BrokeOff = true
	case data == nil:
		x.fault = SmallerBody + bytesize.Text(x.BodyLimit())
	default:
		x.data = data
	}
	return x.data
}

// BodyEncoded reports whether the body is, or may be, compressed, so that its size and fields are unknown.
func (x *Reader) BodyEncoded() bool { return fields.EncodedBody(x.request.Header) }

// BodySize returns the size of the body in bytes. It is unknown if the whole body could not be read.
func (x *Reader) BodySize() (n int64, known bool) {
	data := x.fetch()
	return int64(len(data)), data != nil
}

// BodyField returns the value of a field of a JSON body: its text, if it is a string, or its number, if it is an
// integer. For a member of an inner object, the name is outer[name]. BodyField returns false for other values, and
// if servers could read different members as the field.
func (x *Reader) BodyField(name string) (text string, number int64, ok bool) {
	return x.bodyMembers().JSON(name)
}

// LargestBodyField returns the largest number, rounded up, of all members that a server may read as the field. It
// returns false if no such member is a number.
func (x *Reader) LargestBodyField(name string) (n int64, found bool) {
	return x.bodyMembers().Largest(name)
}

// Spelling returns, for a part with folded values, the value as the request spells it. It is empty for other parts,
// for a value of more than [sluice.MaxKeyPart] bytes, and if no value has been read.
func (x *Reader) Spelling(p *Part) string {
	var m fields.Member
	var state fields.Presence
	switch {
	case p.kind.source == fromQuery && x.query.read:
		m, state = x.query.Field(p.name)
	case p.kind.source == fromBody && x.body.read:
		m, state = x.body.Field(p.name)
	}
	if state != fields.Present || len(m.Text) > sluice.MaxKeyPart {
		return ""
	}
	return m.Text
}

// findClientIP returns the IPv4 address of the client, or the first address of its IPv6 network.
func findClientIP(_ *Part, x *Reader) (string, fields.Presence) {
	if x.client == "" && x.request.Peer.IsValid() {
		start := len(x.buf)
		if a := x.Address(); a.Is4() {
			x.buf = appendIPv4(x.buf, a.As4())
		} else {
			x.buf = MaskClient(a, x.request.IPv6Prefix).AppendTo(x.buf)
		}
		x.client = unsafe.String(&x.buf[start], len(x.buf)-start)
	}
	return fields.Value(x.client)
}

// appendIPv4 appends the text of an address. It takes half the time of [netip.Addr.AppendTo].
func appendIPv4(dst []byte, address [4]byte) []byte {
	for _, n := range address {
		o := &octets[n]
		end := len(dst) + o.len
		dst = append(dst, o.text[0], o.text[1], o.text[2], o.text[3])[:end]
	}
	return dst[:len(dst)-1]
}

// octets has the texts of the numbers in IPv4 addresses, each followed by a dot.
var octets = func() (all [256]struct {
	text [4]byte
	len  int
}) {
	for n := range all {
		all[n].len = len(append(strconv.AppendInt(all[n].text[:0], int64(n), 10), '.'))
	}
	return all
}()

// MaskClient returns the part of an address that identifies a client: a whole IPv4 address, even if it is in IPv6
// form, or the prefix of an IPv6 address. Zones are ignored.
func MaskClient(a netip.Addr, ipv6Prefix int) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		return a
	}
	p, err := a.Prefix(ipv6Prefix)
	if err != nil {
		return a
	}
	return p.Addr()
}

func findHeader(p *Part, x *Reader) (string, fields.Presence) {
	return header(x.request.Header, p.name, p.aliases)
}

// header returns the value of a header field. If the field is present under an alias, the value is garbled, because
// servers read it differently.
func header(h http.Header, name string, aliases []string) (string, fields.Presence) {
	for _, alias := range aliases {
		if len(h[alias]) > 0 {
			return "", fields.Garbled
		}
	}
	return fields.Header(h[name])
}

// findAPIKey reads the key once, because several rules may need it.
func findAPIKey(_ *Part, x *Reader) (string, fields.Presence) {
	if !x.keyKnown {
		x.keyKnown = true
		x.key, x.keyState = x.apiKey()
	}
	return x.key, x.keyState
}

const apiKeyHeader = "X-Api-Key"

var apiKeyAliases = headerAliases(apiKeyHeader)

func (x *Reader) apiKey() (string, fields.Presence) {
	key, state := header(x.request.Header, apiKeyHeader, apiKeyAliases)
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

func (x *Reader) bearer() (string, fields.Presence) {
	value, state := fields.Header(x.request.Header["Authorization"])
	if state != fields.Present {
		return "", state
	}
	scheme, token, _ := strings.Cut(value, " ")
	if !strings.EqualFold(scheme, "bearer") {
		// Some servers split at any kind of space, or use the second of two credentials.
		if strings.Trim(scheme, tokenChars) != "" || strings.Contains(strings.ToLower(value), "bearer") {
			return "", fields.Garbled
		}
		return "", fields.Absent
	}
	token = strings.Trim(token, " \t")
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == ',' || r > '~' }) {
		return "", fields.Garbled // some servers end the token at such a character, or drop the character
	}
	return fields.Value(token)
}

// name folds a value that a person may have typed, so that all spellings of a name are equal.
func (x *Reader) name(m fields.Member, state fields.Presence) (string, fields.Presence) {
	if state != fields.Present {
		return "", state
	}
	if m.IsNumber() && !plainInteger(m.Text) {
		return "", fields.Garbled // some servers read 12.0 as 12
	}
	start := len(x.buf)
	buf, ok := fold.AppendName(x.buf, m.Text)
	if !ok {
		return "", fields.Garbled
	}
	x.buf = buf
	return fields.Value(string(buf[start:]))
}

// plainInteger reports whether all servers read a JSON number as the same integer. Some servers read numbers as
// doubles, which have only 53 bits.
func plainInteger(s string) bool {
	digits := strings.TrimPrefix(s, "-")
	return s != "-0" && len(digits) <= 15 && strings.Trim(digits, "0123456789") == ""
}

func findCookie(p *Part, x *Reader) (string, fields.Presence) {
	m, state := x.cookieMembers().Cookie(p.name)
	return m.Text, state
}

func findQuery(p *Part, x *Reader) (string, fields.Presence) {
	return x.name(x.queryMembers().Field(p.name))
}

func findClaim(p *Part, x *Reader) (string, fields.Presence) {
	m, state := x.claimMembers().Claim(p.name)
	return m.Text, state
}

func findBody(p *Part, x *Reader) (string, fields.Presence) {
	m, state := x.bodyMembers().Field(p.name)
	if header := p.RepeatedBy(); state != fields.Garbled && header != "" && x.contradicts(header) {
		x.fault = MatchingHeader + header
		return "", fields.Garbled
	}
	return x.name(m, state)
}

func findRoute(_ *Part, x *Reader) (string, fields.Presence) { return fields.Value(x.Route) }

// findPath returns the path. It reads the path only once.
func findPath(p *Part, x *Reader) (string, fields.Presence) {
	if !x.pathKnown {
		x.pathKnown = true
		x.path, x.pathState = x.readPath(p.IgnoreCase)
	}
	return x.path, x.pathState
}

func (x *Reader) readPath(ignoreCase bool) (string, fields.Presence) {
	if x.request.Path == "" {
		return "", fields.Absent
	}
	all := paths.Readings(x.request.Path, ignoreCase, &x.readings)
	if len(all) > 1 {
		return "", fields.Garbled
	}
	start := len(x.buf)
	x.buf = appendPath(x.buf, all[0].Segs)
	return string(x.buf[start:]), fields.Present
}

// appendPath appends the path with these segments.
func appendPath(dst []byte, segments []string) []byte {
	if len(segments) == 0 {
		return append(dst, '/')
	}
	for _, s := range segments {
		dst = append(append(dst, '/'), s...)
	}
	return dst
}

// canonicalPath returns a path in the form that findPath returns. It returns "" for a text that is not a path, or
// that servers may read in several ways.
func canonicalPath(v string) string {
	var b paths.Buffer
	all := paths.Readings(v, false, &b)
	if len(all) > 1 || !strings.HasPrefix(v, "/") {
		return ""
	}
	return string(appendPath(nil, all[0].Segs))
}

func findHost(_ *Part, x *Reader) (string, fields.Presence) {
	return fields.Value(x.Host())
}

func findMethod(_ *Part, x *Reader) (string, fields.Presence) {
	if m := pattern.Method(x.request.Method); pattern.IsMethod(m) {
		return m, fields.Present
	}
	return "", fields.Garbled // clients can invent methods
}

func findConst(p *Part, _ *Reader) (string, fields.Presence) { return p.name, fields.Present }

func findAttribute(p *Part, x *Reader) (string, fields.Presence) {
	return fields.Value(x.request.Attributes[p.name])
}

func findTLS(_ *Part, x *Reader) (string, fields.Presence) {
	return fields.Value(x.request.TLSFingerprint)
}

func (x *Reader) queryMembers() *fields.Members {
	m := &x.query
	if !m.read {
		m.read = true
		m.AddQuery(x.request.RawQuery)
	}
	return &m.Members
}

func (x *Reader) cookieMembers() *fields.Members {
	m := &x.cookies
	if !m.read {
		m.read = true
		for _, line := range x.request.Header["Cookie"] {
			m.AddCookies(line)
		}
	}
	return &m.Members
}

// bodyMembers returns the fields of the body and of the query.
func (x *Reader) bodyMembers() *fields.Members {
	m := &x.body
	if m.read {
		return &m.Members
	}
	m.read = true
	switch data := x.fetch(); {
	case data == nil:
		m.Garble()
	case len(data) > 0:
		m.AddBody(data, x.request.Header)
	}
	m.AddQuery(x.request.RawQuery) // many servers read fields from the query, too, even if there is a body
	return &m.Members
}

// claimMembers returns the claims of the bearer token. Its signature is not verified.
func (x *Reader) claimMembers() *fields.Members {
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
