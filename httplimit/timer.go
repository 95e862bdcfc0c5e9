package httplimit

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// timer knows since when a response can be expected: since the handler was called, or since the end of the request's
// body was read, so that a slow upload is not taken for a slow upstream.
type timer struct {
	io.ReadCloser
	started  time.Time
	uploaded atomic.Int64 // nanoseconds after started; 0: the end of the body was not read
	stopped  bool
}

func (t *timer) start(r *http.Request) {
	t.started = time.Now()
	if r.Body != nil && r.Body != http.NoBody {
		t.ReadCloser, r.Body = r.Body, t
	}
}

func (t *timer) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		t.uploaded.CompareAndSwap(0, max(1, int64(time.Since(t.started))))
	}
	return n, err
}

// SetReadDeadline is that of the body, which the gateway has.
func (t *timer) SetReadDeadline(at time.Time) error {
	if body, ok := t.ReadCloser.(interface{ SetReadDeadline(time.Time) error }); ok {
		return body.SetReadDeadline(at)
	}
	return http.ErrNotSupported
}

// answered reports the head of the response to automatic limits of requests under way, or with status 0 that the
// handler has ended without one. What the gateway answers without its upstream says nothing about that.
func (s *settling) answered(status int) {
	t := &s.timer
	if t.started.IsZero() || t.stopped {
		return
	}
	t.stopped = true
	if s.exchange.Client.IsValid() && !s.exchange.Passed {
		return
	}
	if s.request.Context().Err() != nil { // the client has left
		status = 0
	}
	s.door.engine.Answered(s.decision, t.started.Add(time.Duration(t.uploaded.Load())), status)
}
