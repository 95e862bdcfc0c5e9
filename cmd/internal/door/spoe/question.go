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

// maxWait is the maximum value of the argument "wait".
const maxWait = time.Minute

// question is a request for a decision, decoded from a NOTIFY frame.
type question struct {
	head    head
	request policy.Request
	header  http.Header
	wait    time.Duration // the maximum time until the answer
	queued  bool          // the answer is sent later, so the batch does not own the question

	body    string
	hasBody bool // the message has the argument body
	unseen  bool // a rule needed the body, but the message has no argument body
	hosts   bool // a Host field may be read differently from the argument host

	seen  arguments
	texts []string // the values of header
}

// arguments records which required arguments a message has.
type arguments struct{ method, path, src, headers bool }

// missing returns the text of a missing required argument, or "".
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

// forget drops all references to the frame.
func (q *question) forget() {
	clear(q.header)
	clear(q.texts)
	clear(q.request.Attributes)
	*q = question{header: q.header, texts: q.texts[:0], request: policy.Request{Attributes: q.request.Attributes}}
}

// decode decodes a frame with one message. The question keeps a copy of the frame.
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
	// From a list of hosts, HAProxy's req.hdr returns only the last one.
	q.hosts = slices.ContainsFunc(q.header["Host"], func(h string) bool { return !policy.PlainHost(h) })
	delete(q.header, "Host") // as in an http.Request
	if !q.bodiless() {
		q.request.Body = q.readBody
	}
	return nil
}

// argument sets the value of an argument. An argument with an unknown name becomes an attribute, which rules use as
// "attr:NAME".
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

// misaimed returns the error in the target or the host, or "". HAProxy passes ambiguous targets on if its
// configuration permits them.
func (q *question) misaimed() string {
	r := &q.request
	switch {
	case r.Method == http.MethodConnect:
		return "CONNECT is not supported."
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

// readBody is the Body of the request. HAProxy sends the part of the body that had arrived when it built the
// message. Whether the body is complete can be seen only from the length that the client announced.
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

// bodiless reports whether the request certainly has no body.
func (q *question) bodiless() bool {
	announced := q.announced()
	return announced == 0 || announced < 0 && q.hasBody && q.body == "" && !q.chunked()
}

func (q *question) chunked() bool { return len(q.header["Transfer-Encoding"]) > 0 }

// announced returns the length of the body in Content-Length, or -1 if it is unknown. In HTTP/2, a body needs
// neither a Content-Length nor a Transfer-Encoding.
func (q *question) announced() int64 {
	lengths := q.header["Content-Length"]
	if len(lengths) == 1 && !q.chunked() {
		if n, err := strconv.ParseInt(lengths[0], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}
