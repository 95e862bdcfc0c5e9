package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/sluicehq/sluice/internal/printable"
)

// direct is an HTTP/1.1 client for one upstream without TLS. It writes the request and reads the response on the
// caller's goroutine. http.Transport uses other goroutines for both, which costs a third of the gateway's time for
// a request. direct passes some requests to a Transport: those with an upgrade, Expect, or trailers, or with a body
// that is large or of unknown length.
//
// Both direct and a Transport read responses with http.ReadResponse; a test compares their results.
type direct struct {
	rest    *measured
	connect func(ctx context.Context, network, address string) (net.Conn, error)
	address string        // host:port
	timeout time.Duration // bounds the wait for the head of a response; zero means no bound
	slots   *slots

	mu   sync.Mutex
	idle []*link     // the connection that has been idle longest comes first
	reap *time.Timer // set while connections are idle
}

const (
	// smallBody is the maximum size of a body that is read from the client before the request is sent.
	smallBody = 16 << 10
	// maxHead is the maximum size of a response's head, including interim responses, in bytes.
	maxHead = 1 << 20
	// maxIdle is the maximum number of idle connections. idleFor is the time for which they are kept.
	maxIdle = 1024
	idleFor = 90 * time.Second
)

// roundTripper returns the client of u.
func roundTripper(u *Upstream) http.RoundTripper {
	t := transport(u)
	m := &measured{Transport: t, stats: u.stats()}
	if u.URL.Scheme != "http" || !looks {
		return m
	}
	d := &direct{rest: m, connect: t.DialContext, address: u.URL.Host, timeout: u.Timeout, slots: newSlots(u.MaxConnections)}
	t.DialContext = d.dialCounted
	if u.URL.Port() == "" {
		d.address = net.JoinHostPort(u.URL.Hostname(), "80")
	}
	return d
}

// RoundTrip implements http.RoundTripper.
func (d *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if !simple(r) {
		return d.rest.RoundTrip(r)
	}
	body, err := readSmall(r)
	if err != nil {
		return nil, err
	}
	call := d.rest.stats.Begin()
	resp, err := d.send(r, body)
	finish(call, r, resp, err, 0)
	return resp, err
}

// send sends r with body, which has been read from the client.
func (d *direct) send(r *http.Request, body []byte) (*http.Response, error) {
	for {
		l, err := d.get(r.Context())
		if err != nil {
			return nil, err
		}
		if l == nil { // the maximum number of connections is open: the Transport waits for one of them
			return d.rest.send(withBody(r, body))
		}
		again := l.used && repeatable(r)
		resp, unanswered, err := l.exchange(r, body)
		if err == nil {
			return resp, nil
		}
		l.end()
		if !again || !unanswered || r.Context().Err() != nil {
			return nil, err
		}
	}
}

// simple reports whether direct sends r itself. Such a request contains no text that could end a line. Requests
// that a Transport would refuse or correct are passed to the Transport.
func simple(r *http.Request) bool {
	h, u := r.Header, r.URL
	return r.ContentLength >= 0 && r.ContentLength <= smallBody && r.Trailer == nil && r.TransferEncoding == nil && !r.Close &&
		h["Upgrade"] == nil && h["Expect"] == nil && r.Method != http.MethodConnect && httpguts.ValidHeaderFieldName(r.Method) &&
		u.Opaque == "" && u.Path != "*" && visible(u.RawQuery) && r.Host != "" && visible(r.Host) && plainFields(h)
}

// visible reports whether s has only visible ASCII characters, and no spaces.
func visible(s string) bool { return strings.IndexByte(s, ' ') < 0 && printable.ASCII(s) }

// plainFields reports whether no character in h could end a name or a line.
func plainFields(h http.Header) bool {
	for name, values := range h {
		if !httpguts.ValidHeaderFieldName(name) || slices.ContainsFunc(values, func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) }) {
			return false
		}
	}
	return true
}

// readSmall reads the whole body from the client, so that the connection to the upstream does not wait for the
// client.
func readSmall(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	defer r.Body.Close()
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = &clientError{io.ErrUnexpectedEOF}
		}
		return nil, err
	}
	return body, nil
}

func withBody(r *http.Request, body []byte) *http.Request {
	if body == nil {
		return r
	}
	r = r.WithContext(r.Context())
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return r
}

// repeatable reports whether r may be sent again if an idle connection fails. Such a failure is common, because the
// upstream may just have closed the connection.
func repeatable(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return r.ContentLength == 0
	}
	return false
}

// get returns an idle connection that the upstream has not closed, or a new one. It sets the deadline for the
// answer. It returns nil if no more connections may be opened.
func (d *direct) get(ctx context.Context) (*link, error) {
	for {
		l, room := d.take()
		switch {
		case l == nil && !room:
			return nil, nil
		case l == nil:
			return d.dial(ctx)
		}
		l.arm()
		if l.quiet() {
			l.used = true
			return l, nil
		}
		l.end()
	}
}

// take returns the idle connection that was used last. If there is none, take reports whether a new connection may be
// opened, and has then reserved a slot for it.
func (d *direct) take() (l *link, room bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.idle)
	if n == 0 {
		return nil, d.slots.TryAcquire(1)
	}
	l, d.idle[n-1] = d.idle[n-1], nil
	d.idle = d.idle[:n-1]
	return l, true
}

func (d *direct) dial(ctx context.Context) (*link, error) {
	c, err := d.connect(ctx, "tcp", d.address)
	if err != nil {
		d.slots.leave()
		return nil, err
	}
	l := newLink(c, d)
	l.arm()
	return l, nil
}

// put keeps l for another request.
func (d *direct) put(l *link) {
	l.since = time.Now()
	d.mu.Lock()
	room := len(d.idle) < maxIdle
	if room {
		d.idle = append(d.idle, l)
		if d.reap == nil {
			d.reap = time.AfterFunc(idleFor, d.reapIdle)
		}
	}
	d.mu.Unlock()
	switch {
	case !room:
		l.end()
	case d.slots.wanted():
		d.evict()
	}
}

// reapIdle closes connections that have been idle for too long.
func (d *direct) reapIdle() {
	d.mu.Lock()
	n, before := 0, time.Now().Add(-idleFor)
	for n < len(d.idle) && !d.idle[n].since.After(before) {
		n++
	}
	old := append([]*link(nil), d.idle[:n]...)
	rest := copy(d.idle, d.idle[n:])
	clear(d.idle[rest:])
	d.idle, d.reap = d.idle[:rest], nil
	if rest > 0 {
		d.reap = time.AfterFunc(time.Until(d.idle[0].since.Add(idleFor)), d.reapIdle)
	}
	d.mu.Unlock()
	for _, l := range old {
		l.end()
	}
}
