package replay

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/policy"
)

// requests makes requests from log entries. It uses the same memory for all requests.
type requests struct {
	wanted    []string // canonical names of the header fields that rules use
	attrs     bool     // rules use attributes
	model     bool     // rules use the model, which is a field of the body
	forwarded bool     // a policy has trusted proxies
	request   policy.Request
	header    http.Header
	values    [3][1]string // the values of Referer, User-Agent and X-Forwarded-For
	attr      map[string]string
	body      []byte // {"model":"…"}
}

// newRequests returns a requests for the policies of these documents.
func newRequests(docs ...*policy.Document) *requests {
	q := &requests{header: http.Header{}, attr: map[string]string{}}
	q.request.Door = "replay"
	want := func(name string) {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(q.wanted, name) {
			q.wanted = append(q.wanted, name)
		}
	}
	for _, doc := range docs {
		q.forwarded = q.forwarded || len(doc.TrustedProxies) > 0
		for i := range doc.Rules {
			for _, n := range needs(doc, &doc.Rules[i]) {
				switch kind, name, _ := strings.Cut(n, ":"); kind {
				case "header":
					want(name)
				case "api_key":
					want("X-Api-Key")
					want("Authorization")
				case "cookie":
					want("Cookie")
				case "jwt":
					want("Authorization")
				case "attr":
					q.attrs = true
				case "body":
					q.model = true
				}
			}
		}
	}
	if q.forwarded {
		want("X-Forwarded-For")
	}
	return q
}

// build returns the request of an entry from a known peer. The request is valid until the next call.
func (q *requests) build(e *accesslog.Entry, peer netip.Addr) *policy.Request {
	r := &q.request
	r.Method, r.Host, r.Peer, r.Time, r.NoPath = text(e.Method), text(e.Host), peer, time.UnixMicro(e.Time), false
	r.RawQuery = ""
	if len(q.wanted) > 0 || q.attrs {
		q.fields(e)
		r.Header = q.header
	}
	if q.attrs {
		r.Attributes = q.attr
	}
	if r.Body = nil; q.model && len(e.Model) > 0 {
		q.body, r.Body = append(append(append(q.body[:0], `{"model":`...), jsonText(e.Model)...), '}'), q.readBody
	}
	target := text(e.Target)
	if len(target) > 0 && target[0] != '/' {
		target = originForm(r, target)
	}
	if target == "" || r.Aim(target) != "" {
		r.Path, r.RawQuery, r.NoPath = "", "", true
	}
	return r
}

// readBody is the function Body of a request.
func (q *requests) readBody(limit int64) ([]byte, error) {
	if int64(len(q.body)) > limit {
		return nil, nil
	}
	return q.body, nil
}

// jsonText returns a text as a string of JSON.
func jsonText(text []byte) []byte {
	quoted, err := json.Marshal(string(text))
	if err != nil { // encoding a string never fails
		return []byte(`""`)
	}
	return quoted
}

// originForm removes scheme and host from a target such as http://example.com/path. As in a server, this host
// becomes the host of the request, whatever the Host field says.
func originForm(r *policy.Request, target string) string {
	_, rest, absolute := strings.Cut(target, "://")
	if !absolute || strings.ContainsAny(target[:len(target)-len(rest)-3], "/?") {
		return target
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		r.Host = rest
		return "/"
	}
	r.Host = rest[:end]
	if rest[end] == '?' {
		return "/" + rest[end:]
	}
	return rest[end:]
}

// fields sets the headers and attributes of the request.
func (q *requests) fields(e *accesslog.Entry) {
	for name, values := range q.header {
		q.header[name] = values[:0]
	}
	clear(q.attr)
	for i := range e.Headers {
		f := &e.Headers[i]
		if at := slices.Index(q.wanted, text(f.Name)); at >= 0 {
			q.header[q.wanted[at]] = append(q.header[q.wanted[at]], text(f.Value))
		}
	}
	for i, own := range [...]struct {
		name  string
		value []byte
	}{{"Referer", e.Referer}, {"User-Agent", e.UserAgent}, {"X-Forwarded-For", e.Forwarded}} {
		if len(own.value) > 0 && slices.Contains(q.wanted, own.name) {
			q.values[i][0] = text(own.value)
			q.header[own.name] = q.values[i][:]
		}
	}
	if q.attrs && len(e.User) > 0 {
		q.attr["user"] = text(e.User)
	}
	for i := range e.Attributes {
		if f := &e.Attributes[i]; q.attrs && len(f.Value) > 0 {
			q.attr[strings.Clone(text(f.Name))] = text(f.Value)
		}
	}
	for name, values := range q.header {
		if len(values) == 0 {
			delete(q.header, name)
		}
	}
}

// peerOf returns the address of the peer, and whether the address stands for a name. For a log without clients, it
// returns the last address of X-Forwarded-For, which is the peer of the proxy in front.
func peerOf(e *accesslog.Entry) (peer netip.Addr, named bool) {
	if len(e.Client) == 0 {
		last := e.Forwarded
		if i := strings.LastIndexByte(text(last), ','); i >= 0 {
			last = last[i+1:]
		}
		peer, _ = parsePeer(strings.Trim(text(last), " \t"))
		return peer, false
	}
	if a, ok := parsePeer(text(e.Client)); ok {
		return a, false
	}
	return addressOf(e.Client), true
}

// parsePeer reads an address, which may have a port.
func parsePeer(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(s); err == nil {
		return a, true
	}
	a, err := netip.ParseAddrPort(s)
	return a.Addr(), err == nil
}

// addressOf returns an address that stands for the name of a client. It is in fd00::/8, which is not used on the
// Internet. Addresses of different names differ within ipv6_prefix.
func addressOf(name []byte) netip.Addr {
	h := uint64(14695981039346656037) // FNV-1a: it does no harm if two names in a log share an address
	for _, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		h = (h ^ uint64(c)) * 1099511628211
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[1:], h)
	a[0] = 0xfd
	return netip.AddrFrom16(a)
}

// text returns b as a string without a copy. The string is valid as long as b is not changed.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
