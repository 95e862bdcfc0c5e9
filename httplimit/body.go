package httplimit

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// defaultBodyTimeout is for [Config].BodyTimeout.
const defaultBodyTimeout = 10 * time.Second

// peek is peekBody that does not take longer than Config.BodyTimeout.
func (c *call) peek(limit int64) ([]byte, error) {
	if c.r.Body == nil || c.r.Body == http.NoBody || c.r.ContentLength > limit || limit == 0 {
		return peekBody(c.r, limit)
	}
	defer c.bound()()
	return peekBody(c.r, limit)
}

// maxWaiting is how much of a body is read while its request waits.
const maxWaiting = 64 << 10

// drain reads the body, since a server notices only behind it that a client has left.
func (c *call) drain() error {
	_, err := c.peek(maxWaiting)
	return err
}

// bound gives all the reads of the body together Config.BodyTimeout, until the function
// that it returns is called. A server with a ReadTimeout has done so itself.
func (c *call) bound() (release func()) {
	if s, _ := c.r.Context().Value(http.ServerContextKey).(*http.Server); s != nil && s.ReadTimeout > 0 {
		return func() {}
	}
	// A body may have deadlines of its own to combine with.
	var read interface{ SetReadDeadline(time.Time) error } = http.NewResponseController(c.w)
	if body, ok := c.r.Body.(interface{ SetReadDeadline(time.Time) error }); ok {
		read = body
	}
	// An error says that there are no deadlines here, as in tests without a server.
	_ = read.SetReadDeadline(time.Now().Add(cmp.Or(c.door.config.BodyTimeout, defaultBodyTimeout)))
	return func() { _ = read.SetReadDeadline(time.Time{}) }
}

// lingering is how long the server goes on reading the body of a request that is refused.
// It does so before it sends the answer.
const lingering = 500 * time.Millisecond

// linger bounds that reading. A connection on which more would have come is closed.
func (c *call) linger() {
	if c.r.Body != nil && c.r.Body != http.NoBody {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(lingering))
	}
}

// peekBody returns the whole body of r if it has at most limit bytes, else nil; where
// there is none, it is empty and not nil. The error is that of a body that breaks off. The
// handler behind us reads everything from its beginning, and gets the same error there.
func peekBody(r *http.Request, limit int64) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return []byte{}, nil
	}
	if r.ContentLength > limit || r.ContentLength < 0 && limit == 0 {
		return nil, nil
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	r.Body = &replay{read: read, err: err, rest: r.Body}
	if err != nil || int64(len(read)) > limit {
		return nil, err
	}
	return read, nil
}

// replay is a body of which the beginning has been read already.
type replay struct {
	read []byte
	err  error // what came behind read; nil if that is for rest to say
	rest io.ReadCloser
}

func (b *replay) Read(p []byte) (int, error) {
	switch {
	case len(b.read) > 0:
		n := copy(p, b.read)
		b.read = b.read[n:]
		return n, nil
	case b.err != nil:
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *replay) Close() error { return b.rest.Close() }

// askUsage adds a member to the JSON object that is the body of r, which has been read.
func askUsage(r *http.Request) {
	b, ok := r.Body.(*replay)
	if !ok {
		return
	}
	const member = `"stream_options":{"include_usage":true},`
	at := bytes.IndexByte(b.read, '{') + 1
	b.read = slices.Concat(b.read[:at], []byte(member), b.read[at:])
	if r.ContentLength > 0 {
		r.ContentLength += int64(len(member))
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
}
