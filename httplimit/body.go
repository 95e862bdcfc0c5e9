package httplimit

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/jsonscan"
	"github.com/sluicehq/sluice/policy"
)

// defaultBodyTimeout is the default of [Config].BodyTimeout.
const defaultBodyTimeout = 10 * time.Second

// peek returns the whole body of the request if it has at most limit bytes, and otherwise nil. See
// [Config].BodyTimeout for the time that it may take.
func (c *call) peek(limit int64) ([]byte, error) {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return []byte{}, nil
	}
	if c.r.ContentLength > limit || c.r.ContentLength < 0 && limit == 0 {
		return nil, nil
	}
	restart, release := c.bound()
	defer release()
	c.body = &replay{rest: c.r.Body}
	c.r.Body = c.body
	return c.body.peek(c.r.ContentLength, limit, restart)
}

// maxWaiting is the maximum number of bytes of a body that are read before its request waits for its turn.
const maxWaiting = 64 << 10

// drain reads the body, because a server notices that a client has left only after the body has been read.
func (c *call) drain() error {
	if c.body != nil {
		return c.body.err
	}
	if _, err := c.peek(maxWaiting); !errors.Is(err, policy.ErrBodyMemory) {
		return err
	}
	return nil
}

// bound sets the deadline for reading the body to Config.BodyTimeout from now. restart sets it again, and release
// removes it. If the server has a ReadTimeout, bound and both functions do nothing.
func (c *call) bound() (restart, release func()) {
	if s, _ := c.r.Context().Value(http.ServerContextKey).(*http.Server); s != nil && s.ReadTimeout > 0 {
		return func() {}, func() {}
	}
	// Bodies of requests to the gateway have deadlines of their own, which they combine with this one.
	var read interface{ SetReadDeadline(time.Time) error } = http.NewResponseController(c.w)
	if body, ok := c.r.Body.(interface{ SetReadDeadline(time.Time) error }); ok {
		read = body
	}
	// SetReadDeadline fails if deadlines are not supported, as in tests without a server.
	restart = func() {
		_ = read.SetReadDeadline(time.Now().Add(cmp.Or(c.door.config.BodyTimeout, defaultBodyTimeout)))
	}
	restart()
	return restart, func() { _ = read.SetReadDeadline(time.Time{}) }
}

// lingering is how long the server continues to read the body of a denied request before it sends the answer.
const lingering = 500 * time.Millisecond

// linger sets the read deadline to half a second from now (see lingering). If the body has not ended by then, the
// server closes the connection.
func (c *call) linger() {
	if c.r.Body != nil && c.r.Body != http.NoBody {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(lingering))
	}
}

// replay is a body that peek has begun to read. The handler reads the body from the start, and gets the error that
// peek got.
type replay struct {
	rest io.ReadCloser
	err  error // the error that ended the body; if nil, the body continues with rest

	mu   sync.Mutex // the handler's transport may read while the request ends
	read []byte     // bytes that the handler has not read yet
	held int64      // bytes taken from bodyMemory
}

// peek reads the body, and returns it if it has at most limit bytes, and otherwise nil. length is its
// Content-Length, or -1. The error comes from reading the body, or is [policy.ErrBodyMemory]. The function restart is
// called when firstPart bytes have been read, and again each time the number of bytes read has doubled.
func (b *replay) peek(length, limit int64, restart func()) ([]byte, error) {
	most := limit + 1 // one more byte, to notice a longer body
	if length >= 0 {
		most = length + 1
	}
	for {
		if len(b.read) == cap(b.read) {
			if len(b.read) >= firstPart {
				restart()
			}
			if !b.grow(most) {
				return nil, policy.ErrBodyMemory
			}
		}
		n, err := b.rest.Read(b.read[len(b.read):cap(b.read)])
		b.read = b.read[:len(b.read)+n]
		switch {
		case int64(len(b.read)) > limit:
			return nil, nil
		case err == io.EOF:
			return b.read, nil
		case err != nil:
			b.err = err
			return nil, err
		}
	}
}

// firstPart is the size in bytes of the first buffer for a body.
const firstPart = 64 << 10

// grow doubles the memory for the body, but not beyond the number of bytes in most. It reports whether bodyMemory
// has room.
func (b *replay) grow(most int64) bool {
	size := min(2*int64(cap(b.read)), most)
	if cap(b.read) == 0 {
		size = min(firstPart, most)
	}
	if !bodyMemory.take(size) {
		return false
	}
	b.read = append(make([]byte, 0, size), b.read...)
	bodyMemory.release(b.held)
	b.held = size
	return true
}

func (b *replay) Read(p []byte) (int, error) {
	if n := b.replay(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *replay) replay(p []byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.read)
	if b.read = b.read[n:]; len(b.read) == 0 {
		b.free()
	}
	return n
}

// release gives the memory back. Bytes that the handler has not read are lost.
func (b *replay) release() {
	b.mu.Lock()
	b.free()
	b.mu.Unlock()
	if before, ok := b.rest.(*replay); ok {
		before.release()
	}
}

func (b *replay) free() {
	bodyMemory.release(b.held)
	b.held, b.read = 0, nil
}

func (b *replay) Close() error {
	b.release()
	return b.rest.Close()
}

// bodyMemory bounds the memory for bodies that rules read, for all middleware of the process.
var bodyMemory memoryBudget

// maxBodyMemory is how many bytes bodyMemory has.
const maxBodyMemory = 256 << 20

// memoryBudget is a number of bytes in use, up to maxBodyMemory.
type memoryBudget struct{ used atomic.Int64 }

func (m *memoryBudget) take(n int64) bool {
	if m.used.Add(n) > maxBodyMemory {
		m.used.Add(-n)
		return false
	}
	return true
}

func (m *memoryBudget) release(n int64) {
	if n != 0 {
		m.used.Add(-n)
	}
}

// askUsage sets stream_options in the body of r, which is a JSON object and has been read.
func askUsage(r *http.Request) {
	b, ok := r.Body.(*replay)
	if !ok {
		return
	}
	b.mu.Lock()
	before := len(b.read)
	b.read = withUsage(b.read)
	more := len(b.read) - before
	b.mu.Unlock()
	if r.ContentLength > 0 && more != 0 {
		r.ContentLength += int64(more)
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
}

// withUsage returns a JSON object with the member stream_options. It replaces an existing member of that name, such
// as a null. An empty or malformed object is returned unchanged.
func withUsage(body []byte) []byte {
	const name, value = "stream_options", `{"include_usage":true}`
	rest := bytes.TrimPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("\ufeff"))
	rest, isObject := bytes.CutPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte("{"))
	start := len(body) - len(rest)
	i, more := jsonscan.First(body, start, '}')
	if !isObject || !more {
		return body
	}
	for more {
		nameEnd, from := jsonscan.Name(body, i)
		if from < 0 {
			return body
		}
		to := jsonscan.Value(body, from, 1)
		if to < 0 {
			return body
		}
		if written, ok := jsonscan.Unescape(nil, body[i+1:nameEnd-1]); ok && strings.EqualFold(string(written), name) {
			return slices.Concat(body[:from], []byte(value), body[to:])
		}
		i, more = jsonscan.Next(body, to, '}')
	}
	return slices.Concat(body[:start], []byte(`"`+name+`":`+value+","), body[start:])
}
