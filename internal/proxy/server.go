package proxy

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Client says how much patience there is with clients.
type Client struct {
	// HeaderTimeout bounds the time for the head of a request.
	HeaderTimeout time.Duration
	// StallTimeout closes connections on which no byte of a body moves, in either
	// direction, for this long. It does not bound the whole: slow is fine.
	StallTimeout time.Duration
	// MaxHeader is the largest head of a request in bytes; net/http adds 4 KiB.
	MaxHeader int
	Log       *slog.Logger
}

// idleTimeout is how long a connection is kept for a next request.
const idleTimeout = 2 * time.Minute

// Server returns a server of h that is patient within bounds. Its connections come from
// [Connections].
func Server(h http.Handler, c Client) *http.Server {
	return &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, h) }),
		// "OPTIONS *" is a request like any other, and to be counted.
		DisableGeneralOptionsHandler: true,

		ReadHeaderTimeout: c.HeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    c.MaxHeader,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
}

func (c Client) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.Body == nil || r.Body == http.NoBody {
		next.ServeHTTP(w, r)
		return
	}
	b := &clientBody{ReadCloser: r.Body, control: http.NewResponseController(w), stall: c.StallTimeout}
	b.await()
	// The server's own request keeps its body: by that it knows who waits for a 100, and
	// that a refusal must not wait for what is never sent.
	own := r.WithContext(r.Context())
	own.Body = b
	next.ServeHTTP(w, own)
	b.linger()
}

// lingering is how long the server goes on reading a body that nobody wants. It does so
// before it sends an answer.
const lingering = 500 * time.Millisecond

// clientBody is the body of a request. Its errors are marked as the client's, and it does
// not wait for ever for the next bytes.
type clientBody struct {
	io.ReadCloser
	control *http.ResponseController
	stall   time.Duration
	until   time.Time   // a bound for all that is read, if it is not zero
	ended   func()      // called when the trailers have come; may be nil
	done    atomic.Bool // has been read, or will not be
}

// clientError is an error in reading from the client.
type clientError struct{ err error }

func (e *clientError) Error() string { return "reading from the client: " + e.err.Error() }
func (e *clientError) Unwrap() error { return e.err }

func (b *clientBody) await() {
	if b.done.Load() {
		return
	}
	end := time.Now().Add(b.stall)
	if !b.until.IsZero() && b.until.Before(end) {
		end = b.until
	}
	_ = b.control.SetReadDeadline(end)
}

// linger bounds the reading of what is left, if anything is.
func (b *clientBody) linger() {
	if !b.done.Swap(true) {
		_ = b.control.SetReadDeadline(time.Now().Add(lingering))
	}
}

// Close comes from whoever wants no more, and the server's body reads on in it.
func (b *clientBody) Close() error {
	b.linger()
	return b.ReadCloser.Close()
}

// SetReadDeadline bounds all reads together, beside the bound for each.
func (b *clientBody) SetReadDeadline(t time.Time) error {
	b.until = t
	return nil
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.await()
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		// The server goes on reading, to learn whether the client is still there.
		if !b.done.Swap(true) {
			_ = b.control.SetReadDeadline(time.Time{})
		}
		if b.ended != nil {
			b.ended()
		}
	case err != nil:
		err = &clientError{err}
	}
	return n, err
}

// connectTimeout bounds the time to reach an upstream.
const connectTimeout = 5 * time.Second

func transport(u Upstream) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // what the client asked for is what it gets
		MaxConnsPerHost:       u.MaxConnections,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       90 * time.Second,
		ResponseHeaderTimeout: u.Timeout,
		ExpectContinueTimeout: time.Second,
	}
}
