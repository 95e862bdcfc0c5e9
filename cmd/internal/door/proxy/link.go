package proxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// link is a connection to the upstream of its owner. At most one request uses a link at any time.
type link struct {
	net.Conn
	owner *direct
	raw   syscall.RawConn
	in    *bufio.Reader
	out   []byte // memory for the head of a request
	left  int    // the number of bytes of heads that may still be read; negative while a body is read
	lost  error  // the error of reading a head, or nil
	since time.Time
	used  bool // an earlier request has used the connection
}

func newLink(c net.Conn, owner *direct) *link {
	l := &link{Conn: c, owner: owner}
	l.in = bufio.NewReader(l)
	if s, ok := c.(syscall.Conn); ok {
		l.raw, _ = s.SyscallConn() // without raw, the connection is used for only one request
	}
	return l
}

var errHead = fmt.Errorf("the head of the response has more than %d bytes", maxHead)

func (l *link) Read(p []byte) (int, error) {
	if l.left < 0 {
		return l.Conn.Read(p)
	}
	if l.left == 0 {
		l.lost = errHead
		return 0, errHead
	}
	n, err := l.Conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	if l.lost = err; err == io.EOF {
		l.lost = io.ErrUnexpectedEOF
	}
	return n, err
}

// arm sets the deadline for sending a request and reading the head of the response.
func (l *link) arm() {
	if t := l.owner.timeout; t > 0 {
		_ = l.SetDeadline(time.Now().Add(t))
	}
}

// end closes the connection.
func (l *link) end() {
	l.Conn.Close()
	l.owner.slots.leave()
}

// exchange sends r and reads the head of the response. After an error, the caller must close the connection. The
// result unanswered reports whether the connection failed before the first byte of an answer, but not by a timeout.
func (l *link) exchange(r *http.Request, body []byte) (resp *http.Response, unanswered bool, err error) {
	b := &linkBody{link: l}
	if r.Context().Done() != nil {
		b.stop = context.AfterFunc(r.Context(), b.cancel)
	}
	resp, unanswered, err = l.ask(r, body)
	if err != nil {
		if b.stop != nil {
			b.stop()
		}
		if r.Context().Err() != nil {
			err = r.Context().Err()
		}
		return nil, unanswered && !errors.Is(err, os.ErrDeadlineExceeded), err
	}
	l.left = -1
	b.keep = !resp.Close && resp.ProtoAtLeast(1, 1) && l.raw != nil
	if resp.Body == http.NoBody {
		b.done(true)
		return resp, false, nil
	}
	b.here = resp.ContentLength >= 0 && int64(l.in.Buffered()) >= resp.ContentLength
	if !b.here && l.owner.timeout > 0 {
		_ = l.SetDeadline(time.Time{})
		if b.canceled.Load() {
			b.cancel()
		}
	}
	b.body, resp.Body = resp.Body, b
	return resp, false, nil
}

func (l *link) ask(r *http.Request, body []byte) (resp *http.Response, unanswered bool, err error) {
	l.out = append(appendRequest(l.out[:0], r), body...)
	if _, err := l.Write(l.out); err != nil {
		return nil, true, err
	}
	if cap(l.out) > 2*smallBody {
		l.out = nil
	}
	l.left = maxHead
	if _, err := l.in.Peek(1); err != nil {
		return nil, true, err
	}
	resp, err = l.readHead(r)
	return resp, false, err
}

// readHead reads the head of the response, and any informational responses before it.
func (l *link) readHead(r *http.Request) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(l.in, r)
		switch {
		case err != nil:
			return nil, cmp.Or(l.lost, err) // ReadResponse reports a line that broke off as malformed
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errSwitch // the request did not ask for an upgrade
		case resp.StatusCode < 100:
			return nil, errStatus
		case resp.StatusCode >= 200:
			return resp, nil
		case resp.StatusCode == http.StatusContinue:
			continue
		}
		if t := httptrace.ContextClientTrace(r.Context()); t != nil && t.Got1xxResponse != nil {
			if err := t.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
		}
	}
}

var errStatus = errors.New("the status of the response is below 100")

// appendRequest appends the head of a request.
func appendRequest(b []byte, r *http.Request) []byte {
	b = append(append(b, r.Method...), ' ')
	b = append(append(b, r.URL.RequestURI()...), " HTTP/1.1\r\n"...)
	b = appendField(b, "Host", r.Host)
	for name, values := range r.Header {
		switch name {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		case "User-Agent":
			if len(values) == 0 || values[0] == "" {
				continue
			}
			values = values[:1]
		}
		for _, v := range values {
			b = appendField(b, name, textproto.TrimString(v))
		}
	}
	switch {
	case r.ContentLength > 0, r.Method == http.MethodPost, r.Method == http.MethodPut, r.Method == http.MethodPatch:
		b = append(b, "Content-Length: "...)
		b = append(strconv.AppendInt(b, r.ContentLength, 10), "\r\n"...)
	}
	return append(b, "\r\n"...)
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// linkBody is the body of a response. When it has been read, the connection is kept for another request.
type linkBody struct {
	link *link
	body io.ReadCloser
	keep bool        // the connection may be used for another request
	here bool        // the whole body has arrived
	err  error       // the error of a Read
	stop func() bool // stops watching the context; nil if the context is not watched

	canceled, ended atomic.Bool
}

// cancel ends running reads when the context of the request is canceled.
func (b *linkBody) cancel() {
	b.canceled.Store(true)
	_ = b.link.SetDeadline(time.Unix(1, 0))
}

// done ends the response. It keeps the connection for another request if the whole response was read, as the
// parameter all reports, and the context was not canceled. Otherwise it closes the connection.
func (b *linkBody) done(all bool) {
	if b.ended.Swap(true) {
		return
	}
	unwatched := b.stop == nil || b.stop()
	if all && unwatched && b.keep && b.link.in.Buffered() == 0 {
		b.link.owner.put(b.link)
		return
	}
	b.link.end()
}

func (b *linkBody) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.ended.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, b.err = b.body.Read(p)
	if b.err != nil {
		b.done(b.err == io.EOF)
	}
	return n, b.err
}

// Close closes the connection unless the whole body has been read. It may be called during a Read.
func (b *linkBody) Close() error {
	b.done(false)
	return nil
}
