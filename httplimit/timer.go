package httplimit

import (
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// timer measures when the latency of a response starts: at the call of the handler or, if that is later, at the end
// of the upload. So a slow client is not mistaken for a slow upstream.
type timer struct {
	io.ReadCloser
	started time.Time
	last    atomic.Int64 // nanoseconds from started until the last byte, or the end, of the body was read
	reading atomic.Bool
	ended   bool
	stopped bool
}

// startTimer starts the timer of a request. If r has a body, the timer becomes its body.
func startTimer(r *http.Request) *timer {
	t := &timer{started: time.Now()}
	if r.Body != nil && r.Body != http.NoBody {
		t.ReadCloser, r.Body = r.Body, t
	}
	return t
}

func (t *timer) Read(p []byte) (int, error) {
	t.reading.Store(true)
	n, err := t.ReadCloser.Read(p)
	if n > 0 || err != nil && !t.ended {
		t.last.Store(int64(time.Since(t.started)))
	}
	t.ended = t.ended || err != nil
	t.reading.Store(false)
	return n, err
}

// SetReadDeadline sets the read deadline of the body, if the body has this method, as the bodies of the gateway do.
func (t *timer) SetReadDeadline(at time.Time) error {
	if body, ok := t.ReadCloser.(interface{ SetReadDeadline(time.Time) error }); ok {
		return body.SetReadDeadline(at)
	}
	return http.ErrNotSupported
}

// answered reports the head of the response to automatic limits of requests in flight. Status 0 means that the
// handler ended without a head. A head that the gateway itself made, or that was sent during the upload, is not
// reported, because it does not show the latency of the upstream.
func (s *settling) answered(status int) {
	t := s.timer
	if t == nil || t.stopped {
		return
	}
	t.stopped = true
	if x := s.exchange; t.reading.Load() || x.Client.IsValid() && (!x.Passed || x.Own) {
		return
	}
	if s.request.Context().Err() != nil { // the client has left
		status = 0
	}
	s.door.engine.Answered(s.decision, t.started.Add(time.Duration(t.last.Load())), status)
}
