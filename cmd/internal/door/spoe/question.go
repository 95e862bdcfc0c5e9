package spoe

import (
	"errors"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// maxWait is the largest value of the argument wait. A later turn is useless to HAProxy.
const maxWait = time.Minute

// question is a decoded NOTIFY frame.
type question struct {
	head    head
	request policy.Request
	header  http.Header
	wait    time.Duration // how long the answer may take
	queued  bool          // it is answered later

	body    string
	hasBody bool // the message has the argument body
	unseen  bool // a rule needed a body, but the argument is missing
	hosts   bool // the headers have a Host that servers may read differently from the argument

	seen  arguments
	texts []string // the values of header
}

// arguments are the required arguments of a message that were found.
type arguments struct{ method, path, src, headers bool }

// missing returns the name of a required argument that is missing, or "".
func (a arguments) missing() string {
	switch {
	case !a.method:
		return "method=method"
	case !a.path:
		return "path=pathq"
	case !a.src:
		return "src=src"
	case !a.headers:
		return "headers=req.hdrs_bin"
	}
	return ""
}

func newQuestion() *question {
	return &question{header: make(http.Header)}
}

// forget drops all references to the last frame.
func (q *question) forget() {
	clear(q.header)
	clear(q.texts)
	clear(q.request.Attributes)
	*q = question{header: q.header, texts: q.texts[:0], request: policy.Request{Attributes: q.request.Attributes}}
}

// decode reads a frame with one message. The question refers to a copy of the frame.
func (q *question) decode(frame []byte) error {
	d := decoder{rest: string(frame)}
	q.head = d.head()
	if q.head.flags&flagFin == 0 {
		return &fault{codeFragmented, "a frame is a fragment: set \"no option send-frag-payload\""}
	}
	q.request.Header = q.header
	d.text() // the name of the message
	for range d.byte() {
		q.argument(d.text(), d.value())
	}
	if d.rest != "" {
		return &fault{codeInvalid, "a frame has more than one message: put all arguments into one"}
	}
	if d.broken {
		return errBroken
	}
	if q.request.Host == "" {
		q.request.Host = q.header.Get("Host")
	}
	// HAProxy's req.hdr takes the last host of a list.
	q.hosts = slices.ContainsFunc(q.header["Host"], func(h string) bool { return !policy.PlainHost(h) })
	delete(q.header, "Host") // http.Request has no Host in its Header either
	if !q.bodiless() {
		q.request.Body = q.readBody
	}
	return nil
}

// argument reads an argument. One with an unknown name is an attribute, by which rules count with "attr:NAME".
func (q *question) argument(name string, v value) {
	switch name {
	case "method":
		q.request.Method, q.seen.method = v.text, true
	case "path":
		q.request.Path, q.request.RawQuery, _ = strings.Cut(v.text, "?")
		q.seen.path = true
	case "host":
		q.request.Host = v.text
	case "src":
		q.request.Peer, _ = netip.AddrFromSlice([]byte(v.text)) // missing for a Unix socket
		q.seen.src = true
	case "headers":
		q.readHeaders(v.text)
		q.seen.headers = true
	case "id":
		q.request.ID = v.text
	case "body":
		q.body, q.hasBody = v.text, true
	case "wait":
		q.wait = time.Duration(min(v.number, uint64(maxWait/time.Millisecond))) * time.Millisecond
	default:
		q.attribute(name, v)
	}
}

func (q *question) attribute(name string, v value) {
	text := v.text
	switch v.kind {
	case typeNull:
		return
	case typeIPv4, typeIPv6:
		addr, _ := netip.AddrFromSlice([]byte(v.text))
		text = addr.String()
	case typeBool:
		text = strconv.FormatBool(v.number != 0)
	case typeInt32, typeUint32, typeInt64, typeUint64:
		text = strconv.FormatInt(int64(v.number), 10)
	}
	if q.request.Attributes == nil {
		q.request.Attributes = make(map[string]string)
	}
	q.request.Attributes[name] = text
}

// readHeaders reads the value of req.hdrs_bin: names and values, followed by an empty pair.
func (q *question) readHeaders(s string) {
	for d := (decoder{rest: s}); d.rest != ""; {
		name, text := d.text(), d.text()
		if d.broken || name == "" {
			return
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if before, repeated := q.header[name]; repeated {
			q.header[name] = append(before, text)
			continue
		}
		q.texts = append(q.texts, text)
		n := len(q.texts)
		q.header[name] = q.texts[n-1 : n : n]
	}
}

// misaimed returns the fault of the target, or "". HAProxy passes ambiguous targets if its configuration permits
// them.
func (q *question) misaimed() string {
	r := &q.request
	switch {
	case r.Method == http.MethodConnect:
		return "CONNECT is not taken here."
	case r.Path == "*" && r.Method == http.MethodOptions:
		return ""
	case !strings.HasPrefix(r.Path, "/"):
		return "The request target must be a path."
	case strings.Contains(r.Path, "#") || strings.Contains(r.RawQuery, "#"):
		return "The request target must not have a fragment."
	case q.hosts, !policy.PlainHost(r.Host):
		return "The Host must be a name or an address, with an optional port."
	}
	return ""
}

var errUnseen = errors.New("spoe: the message has no argument body")

// readBody is the Body of the request. HAProxy sends the part of the body that has arrived when it builds the
// message. Only the length that the client announced shows whether the body is complete.
func (q *question) readBody(limit int64) ([]byte, error) {
	switch announced := q.announced(); {
	case limit == 0:
		return nil, nil
	case !q.hasBody:
		q.unseen = true
		return nil, errUnseen
	case announced != int64(len(q.body)):
		return nil, policy.ErrBodyPart
	case announced > limit:
		return nil, nil
	}
	return []byte(q.body), nil
}

// bodiless reports whether the request is known to have no body.
func (q *question) bodiless() bool {
	announced := q.announced()
	return announced == 0 || announced < 0 && q.hasBody && q.body == "" && !q.chunked()
}

func (q *question) chunked() bool { return len(q.header["Transfer-Encoding"]) > 0 }

// announced returns the length of the body that the client has announced, or -1. HTTP/2 needs neither a length nor
// a Transfer-Encoding.
func (q *question) announced() int64 {
	lengths := q.header["Content-Length"]
	if len(lengths) == 1 && !q.chunked() {
		if n, err := strconv.ParseInt(lengths[0], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}
