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
	Method string // such as "GET"; empty means "GET"
	Host   string // as in http.Request, with or without a port
	// Path is the path as it was sent, escaped ("/a%2fb"), without the query.
	Path     string
	RawQuery string
	// NoPath reports that the path is unknown, as in a request that a server could not read. Rules with patterns do
	// not apply then.
	NoPath bool
	// Peer is the address of the other end of the connection. The address of the client follows from it, and from
	// the forwarded header if Peer is a trusted proxy of the policy.
	Peer   netip.Addr
	Header http.Header
	// ForwardedHeader is the name of the forwarded header: X-Forwarded-For if empty.
	ForwardedHeader string
	// Client is the address of the client, if the integration has already found it by Peer and the forwarded
	// header. The zero value means unknown.
	Client netip.Addr
	// Body returns the whole body if it has at most limit bytes, else nil. It returns an error if the body broke off;
	// then later readers cannot get the whole body either. The integration restores the body for the next reader.
	// Body is called at most once with the policy's body_limit, if a matching rule needs the body. Before that, it may
	// be called with a limit of 0, to learn whether a preflight has a body. Body may be nil.
	Body func(limit int64) ([]byte, error)
	// Attributes are values that do not come from an HTTP request, but from the program or another protocol, such as
	// the user in a context. Rules count by them with "attr:NAME". An empty attribute counts as missing.
	Attributes map[string]string
	// TLSFingerprint is the JA4 fingerprint of the client's TLS. Rules count by it with "tls_fingerprint". It is
	// empty without TLS.
	TLSFingerprint string
	// Cost is the number of requests that this one counts as: each rule multiplies its cost by this number, except
	// for rules with in_flight or distinct. A Cost below 1 counts as 1.
	Cost int64
	// Mode is the kind of the request. By default the request is charged. A peek takes nothing: its results report the
	// units that remain now. A refund gives back at most the units in use, ignores [Subject.Block], lifts no penalty,
	// and frees no permit.
	Mode Mode
	// If Subject is set, only this subject is charged, and rules are not matched. The policy in force supplies its
	// limits (from its override, the tier of its key, or the default tier) and the rule's fixed cost. Of the
	// request, only Cost, Mode, ID, Ends and Time are used and, for a rule with distinct, the part with the values to
	// count. If the rule no longer exists, nothing is limited. If the key of the rule has other parts than when the
	// Subject was made, the request is denied with Missing set, because the subject is now counted under another key.
	// Get a new Subject from [Engine.Subject].
	Subject *Subject
	// ID, if not empty, names the request, so that a repeated call is not charged again: requests with the same ID,
	// keys, limits and costs count once within [RepeatedWithin]. The ID is stored in the same atomic step as the
	// charges, so only one of many simultaneous calls is charged. On a cluster, this is a single step only if all
	// charges have the same hash tag. Each ID takes as much memory in the store as a key. An ID can be charged again if
	// the request was denied, or was given back: by [Engine.Refund], or by a request with Mode [GiveBack] and the same
	// ID. Such a request takes effect only once. A repetition has nothing to refund or to settle. In a queue, it waits
	// for the turn that the first request had; if that turn has passed, or if another instance assigned it, the
	// repetition takes another turn. During an outage of the shared store, an instance knows only the IDs that it
	// allowed itself.
	//
	// A client that can choose the ID gets any number of requests for the price of one: take IDs only from trusted
	// sources. With an ID, bodies are read before any limit is checked. Package redisstore can deny requests from
	// memory, without a call to the server. It does so for a request with an ID only if it has already denied a request
	// with the same ID.
	ID string
	// Door names the integration of the request, such as "gateway", for observers. It never comes from requests.
	Door string
	// Ends reports that the integration knows when the request ends, and then calls [Engine.Release]. Otherwise
	// rules with in_flight deny the request while all permits are taken, but the request takes no permit.
	Ends bool
	// Timed means that the integration reports the response by [Engine.Answered]. Automatic limits of requests
	// under way count only such requests.
	Timed bool
	// Part means that this is a part of a request under way, such as a message of a stream. Rules with in_flight
	// have already counted that request.
	Part bool
	// Recorded, for a request that is decided again, returns the earlier reading of a part, by its ID in
	// [Policy.RequestParts]. It returns false for a part that has to be read from the other fields. Recorded may be
	// nil.
	Recorded func(id string) (Reading, bool)
	// Time is when the request is made, or zero for now. The policy uses it for overrides, tiers and blocks that
	// expire, and to divide shared limits. The store counts by its own clock.
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

// Partition returns the address by which client_ip identifies the client of a request; for IPv6 it is the first
// address of the client's network. Requests with different partitions never share a count of a rule that has
// client_ip in its key. The result is the zero address if the client is unknown.
func (p *Policy) Partition(r *Request) netip.Addr {
	return parts.MaskClient(p.client(r), p.ipv6Prefix)
}

// Aim sets Path and RawQuery from target: a path with its query, or the "*" of OPTIONS. Aim is for integrations that
// get a description of a request instead of the request. If Header contains Host, Aim moves it to r.Host. If a server
// would have rejected the described request, or would have read it differently from the rules, Aim returns a sentence
// that describes the fault; otherwise it returns "".
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

// Characters that stand for themselves in a path, and characters of methods and names of fields.
var (
	inPlainPath = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~")
	inToken     = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~")
)

// only reports whether all characters of s are in the set in.
func only(s string, in *[256]bool) bool {
	for i := range len(s) {
		if !in[s[i]] {
			return false
		}
	}
	return true
}

// plainQuery reports whether a query is printable ASCII without spaces and "#", which all servers read alike.
func plainQuery(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '#' {
			return false
		}
	}
	return true
}

func token(s string) bool { return s != "" && only(s, &inToken) }

// fieldsHold reports whether the header fields are valid in a request.
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

// PlainHost reports whether all servers read the same host from s. It reports true for a name or an address, with
// or without a port, and for an empty s. In "a:80:80", some servers read the host "a" and some no host; in "a..",
// some drop one dot and some both. Integrations refuse requests with such hosts.
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

// NameRefusals gives every denied request an ID: see [Decision.RequestID]. Call it before the first decision. It has an
// effect only if the engine has an observer, which stores or logs denials so that people can look up an ID.
func (e *Engine) NameRefusals() { e.named = true }

// RequestID returns the ID of a denied request if [Engine.NameRefusals] was called, else "". The ID is the request's
// X-Request-Id, or else the ID of the [Request]. If that is not printable ASCII of at most 128 bytes, it is a random
// number in 16 hexadecimal digits.
func (d *Decision) RequestID() string {
	if d.id == "" && d.made != 0 {
		return fmt.Sprintf("%016x", d.made)
	}
	return d.id
}

// name sets the ID of a denied request.
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

// Mode is the kind of a [Request].
type Mode uint8

const (
	Charge   Mode = iota // decide, and take the cost of the request
	Peek                 // decide as if the request were made, and take nothing
	GiveBack             // give back the cost of the request, which an earlier request has taken

	settling // settle the charges of the request
)

// ErrBodyMemory is the error that Body of a [Request] returns if the bodies of other requests take up the memory
// for bodies. The request is denied with status 503 if a rule depends on its body.
var ErrBodyMemory = parts.ErrBodyMemory

// ErrBodyPart is the error that Body of a [Request] returns if only a part of the body reached the integration, or
// if that cannot be known. The request is denied with status 413 if a rule depends on its body.
var ErrBodyPart = parts.ErrBodyPart
