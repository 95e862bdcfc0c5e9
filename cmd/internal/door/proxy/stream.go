package proxy

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errSilent  = errors.New("no data arrived for too long")
	errStreams = errors.New("too many WebSockets, event streams and gRPC streams are open")
)

// streams bounds the time without data within each answer, and the number of long-lived answers: WebSockets, event
// streams, and gRPC calls whose client may still send.
type streams struct {
	silence time.Duration // zero means no bound
	most    int           // zero means no bound
	open    atomic.Int64
}

// bound applies the bounds to an answer of the upstream.
func (s *streams) bound(resp *http.Response) error {
	if resp.Body == http.NoBody {
		return nil
	}
	release := func() {}
	call := callOf(resp)
	if endless(resp) || call != nil && call.open() {
		if n := s.open.Add(1); s.most > 0 && n > int64(s.most) {
			s.open.Add(-1)
			return errStreams
		}
		release = sync.OnceFunc(func() { s.open.Add(-1) })
	}
	b := &answerBody{ReadCloser: resp.Body, silence: s.silence, release: release, call: call}
	if here, ok := resp.Body.(*linkBody); s.silence > 0 && (!ok || !here.here) {
		b.timer = time.AfterFunc(s.silence, b.silent)
	}
	if call != nil {
		call.answer.Store(b)
	}
	resp.Body = b
	if both, ok := b.ReadCloser.(io.ReadWriteCloser); ok && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body = &tunnel{b, both}
	}
	return nil
}

func endless(resp *http.Response) bool {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	kind := resp.Header.Get("Content-Type")
	if len(kind) < len("text/e") || kind[0]|0x20 != 't' && kind[0] > ' ' { // a quick test that excludes nearly all types
		return false
	}
	kind, _, _ = mime.ParseMediaType(kind)
	return kind == "text/event-stream"
}

// answerBody is the body of an answer. Its reads fail after the time silence without data.
type answerBody struct {
	io.ReadCloser
	silence time.Duration
	timer   *time.Timer // nil without a bound
	late    atomic.Bool
	release func()
	call    *clientBody // the other direction of a gRPC call, or nil
}

// silent ends running reads when the timer has expired.
func (b *answerBody) silent() {
	b.late.Store(true)
	b.ReadCloser.Close()
}

// moved restarts the timer.
func (b *answerBody) moved() {
	if b.timer != nil && !b.late.Load() {
		b.timer.Reset(b.silence)
	}
}

func (b *answerBody) Read(p []byte) (int, error) {
	b.moved()
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.late.Load() {
		err = errSilent
	}
	if b.call != nil && n > 0 {
		b.call.await()
	}
	return n, err
}

func (b *answerBody) Close() error {
	if b.call != nil {
		b.call.answer.Store(nil)
	}
	if b.timer != nil {
		b.timer.Stop()
	}
	b.release()
	return b.ReadCloser.Close()
}

// tunnel is the upstream's end of a WebSocket. Data in either direction restarts the timer.
type tunnel struct {
	*answerBody
	upstream io.ReadWriteCloser
}

func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.answerBody.Read(p)
	t.moved()
	return n, err
}

func (t *tunnel) Write(p []byte) (int, error) {
	t.moved()
	return t.upstream.Write(p)
}

// CloseWrite closes the direction to the upstream, after the client has closed its side.
func (t *tunnel) CloseWrite() error {
	if half, ok := t.upstream.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return t.Close()
}
