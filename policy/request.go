package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Request is the input of a policy. Integrations fill it in; the zero value of a field means that the integration
// does not have it.
type Request struct {
	Method string // "GET"; empty is GET
	Host   string // as in http.Request, with or without a port
	// Path is the path as it was sent, escaped ("/a%2fb"), without the query.
	Path     string
	RawQuery string
	// NoPath reports that the path is unknown, as for a request that a server could not read: rules with patterns
	// do not apply to it.
	NoPath bool
	// Peer is the other end of the connection. The client follows from it, and from the header of the policy's
	// trusted proxies.
	Peer   netip.Addr
	Header http.Header
	// ForwardedHeader is the name of that header: X-Forwarded-For if empty.
	ForwardedHeader string
	// Client is the address of the client, if the integration has already found it by Peer and that header. The
	// zero value means unknown.
	Client netip.Addr
	// Body returns the whole body if it has at most limit bytes, or else nil; and an error if it broke off, and no
	// reader gets the whole of it. The integration restores it for the next reader. It is called at most once: if a
	// matching rule needs it, or with a limit of 0 to learn whether a preflight has one. It may be nil.
	Body func(limit int64) ([]byte, error)
	// Attributes are what only the program knows, or another protocol brings, such as the user from a context:
	// rules count by them with "attr:NAME". An empty attribute counts as missing.
	Attributes map[string]string
	// TLSFingerprint is the JA4 of the client's TLS: rules count by it with "tls_fingerprint". It is empty without
	// TLS.
	TLSFingerprint string
	// Cost is the number of requests that this one counts as: each rule takes so many times its cost, except for
	// rules with in_flight. A Cost below 1 is 1.
	Cost int64
	// Mode is the kind of the request: by default it is charged. A peek gets what remains without it. A refund
	// gives back at most what is used, ignores [Subject.Block], lifts no penalty, and frees no permit.
	Mode Mode
	// Subject, if set, is decided alone, in place of the matching rules, by the policy in force: its override, the
	// tier of its key or else the default one, and the rule's fixed cost. Of the request only Cost, Mode, ID and
	// Time are used then. A rule that no longer exists limits nothing. A rule with another key than before denies,
	// with Missing set, because it has the subject under another key: [Engine.Subject] returns it.
	Subject *Subject
	// ID names the request, if it is not empty, so that a proxy that repeats a call is not charged again: the same
	// request with the same ID, keys, limits and costs counts once within [RepeatedWithin]. The ID is charged in
	// the same step of the store as the limits, so that one of many simultaneous calls is charged, and takes the
	// space of a key there. A denied ID is decided again, and so is one that was given back, by [Engine.Refund] or
	// by [GiveBack] with the same ID, which gives back once. A repetition has nothing to refund or to settle. In a
	// queue it waits for the turn that it had; once that has passed, or if another instance gave it, it takes
	// another turn. During an outage of the shared store an instance knows only the IDs that it allowed itself, and
	// on a cluster it is one step only if all charges have one hash tag.
	//
	// A client that can choose the ID gets any number of requests for the price of one: take it only from trusted
	// sources. With an ID, bodies are read before any rule is evaluated, and new denials are not answered from
	// memory.
	ID string
	// Door names the integration of the request, such as "gateway", for observers. It never comes from requests.
	Door string
	// Ends reports that the integration knows the end of the request, and calls [Engine.Release] then. Otherwise
	// rules with in_flight only look at the number under way: they deny while all permits are taken, and the
	// request takes none.
	Ends bool
	// Timed reports that the integration reports the response by [Engine.Answered]. Automatic limits of requests
	// under way count only such requests.
	Timed bool
	// Part reports that this is a part of a request under way, such as a message of a stream, which rules with
	// in_flight have counted already.
	Part bool
	// Recorded returns what was read of a part of the request before, by its ID in [Policy.RequestParts], for a request
	// that is decided again. It returns false for a part that is to be read from the other fields. May be nil.
	Recorded func(id string) (Reading, bool)
	// Time is when the request is made, or zero for now. The policy uses it for overrides and blocks that expire.
	// The store counts by its own clock.
	Time time.Time
}

// now returns the time of the request in microseconds since the Unix epoch.
func (r *Request) now() int64 {
	if r.Time.IsZero() {
		return time.Now().UnixMicro()
	}
	return r.Time.UnixMicro()
}

// client returns the address of the client.
func (p *Policy) client(r *Request) netip.Addr {
	if r.Client.IsValid() {
		return r.Client
	}
	return parts.Client(r.Peer, r.Header, p.trusted, r.ForwardedHeader)
}

// Partition returns the address by which client_ip identifies the client of a request; for IPv6 it is
// the first address of the client's network. Requests with different partitions never share a count of
// a rule that has client_ip in its key. It is the zero address if the client is unknown.
func (p *Policy) Partition(r *Request) netip.Addr {
	return parts.MaskClient(p.client(r), p.ipv6Prefix)
}

// Aim sets Path and RawQuery from target, a path with its query or the "*" of OPTIONS, for an integration that gets
// a description of a request instead of the request. A Host among the fields becomes the request's. If a server
// would have rejected such a request, or read it differently from rules, Aim returns a sentence about the fault in
// its head, and otherwise "".
func (r *Request) Aim(target string) (fault string) {
	if named := r.Header["Host"]; named != nil {
		if r.Host == "" && len(named) == 1 {
			r.Host = named[0]
		} else if len(named) != 1 || !strings.EqualFold(named[0], r.Host) {
			return "The request has two hosts."
		}
		delete(r.Header, "Host")
	}
	switch {
	case r.Method != "" && !token(r.Method), r.Method == http.MethodConnect:
		return "Invalid method."
	case !PlainHost(r.Host):
		return "The Host must be a name or an address, with an optional port."
	case !fieldsHold(r.Header):
		return "Invalid header field."
	case target == "*" && r.Method == http.MethodOptions:
		r.Path = target
		return ""
	}
	return r.split(target)
}

// split reads path and query as a server does.
func (r *Request) split(target string) (fault string) {
	path, query, _ := strings.Cut(target, "?")
	r.Path, r.RawQuery = path, query
	if path != "" && path[0] == '/' && only(path, &inPlainPath) && plainQuery(query) {
		return ""
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || path == "" || path[0] != '/' || strings.ContainsAny(target, " #") {
		return `The path must begin with "/" and be escaped as in a request.`
	}
	r.Path, r.RawQuery = u.EscapedPath(), u.RawQuery
	return ""
}

// What most paths are made of, and stands for itself in them; and methods and names of fields.
var (
	inPlainPath = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~")
	inToken     = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~")
)

// only reports whether a text has no other characters.
func only(s string, in *[256]bool) bool {
	for i := range len(s) {
		if !in[s[i]] {
			return false
		}
	}
	return true
}

// plainQuery reports whether a query is printable ASCII, which no server reads otherwise.
func plainQuery(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '#' {
			return false
		}
	}
	return true
}

func token(s string) bool { return s != "" && only(s, &inToken) }

// fieldsHold reports whether the fields can be in a head.
func fieldsHold(h http.Header) bool {
	for name, values := range h {
		if !token(name) {
			return false
		}
		for _, v := range values {
			for i := range len(v) {
				if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
					return false
				}
			}
		}
	}
	return true
}

// PlainHost reports whether all servers read the same host: a name or an address, with a port or without, or none
// at all. In "a:80:80", some servers read the host "a" and some none; in "a..", some drop one dot and some both.
// Integrations refuse requests with such hosts.
func PlainHost(s string) bool {
	if literal, found := strings.CutPrefix(s, "["); found {
		inner, rest, closed := strings.Cut(literal, "]")
		if a, err := netip.ParseAddr(inner); err != nil || !a.Is6() || a.Zone() != "" || !closed {
			return false
		}
		return rest == "" || rest[0] == ':' && digits(rest[1:])
	}
	for i := range len(s) {
		switch {
		case inLabel[s[i]]:
		case s[i] != '.':
			return s[i] == ':' && digits(s[i+1:])
		case i == 0 || s[i-1] == '.':
			return false
		}
	}
	return true
}

// inLabel are the characters between the dots of names and of IPv4 addresses.
var inLabel = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~")

func characters(all string) (t [256]bool) {
	for i := range len(all) {
		t[all[i]] = true
	}
	return t
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// NameRefusals gives every refused request an ID: see [Decision.RequestID]. Call it before the first
// decision. It needs an observer that keeps or logs refusals, since nothing else can be found by an ID.
func (e *Engine) NameRefusals() { e.named = true }

// RequestID returns the ID of a refused request if [Engine.NameRefusals] was called, else "". It is the
// request's X-Request-Id, or else its ID, if that is at most 128 bytes of printable ASCII,
// and otherwise a random number in 16 hexadecimal digits.
func (d *Decision) RequestID() string {
	if d.id == "" && d.made != 0 {
		return fmt.Sprintf("%016x", d.made)
	}
	return d.id
}

// name sets the ID of a refused request.
func (d *Decision) name(r *Request) {
	if d.id = r.ID; len(r.Header["X-Request-Id"]) > 0 && r.Header["X-Request-Id"][0] != "" {
		d.id = r.Header["X-Request-Id"][0]
	}
	if !isRequestID(d.id) {
		d.id, d.made = "", 1+rand.Uint64N(1<<64-1)
	}
}

// maxRequestID is the length of the longest ID that is sent back, in bytes.
const maxRequestID = 128

func isRequestID(s string) bool {
	return s != "" && len(s) <= maxRequestID && printable.ASCII(s)
}

// Mode is what a request asks for.
type Mode uint8

const (
	Charge   Mode = iota // decide, and take what it costs
	Peek                 // decide as if it were made, and take nothing
	GiveBack             // give back what it costs, as if it had been taken before

	settling // settle what it was charged
)

// ErrBodyMemory is the error that Body of a [Request] returns if the bodies of other requests take up the memory
// for bodies. The request is denied with status 503 if a rule goes by its body.
var ErrBodyMemory = parts.ErrBodyMemory

// ErrBodyPart is the error that Body of a [Request] returns if only a part of the body reached the integration, or if
// that cannot be known. The request is denied with status 413 if a rule goes by its body.
var ErrBodyPart = parts.ErrBodyPart
