package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/internal/exchange"
)

// Client has the bounds for clients.
type Client struct {
	// HeaderTimeout bounds the time for the head of a request.
	HeaderTimeout time.Duration
	// StallTimeout is the time without a byte of a body, in either direction, after which a connection or an HTTP/2
	// stream is closed. It does not bound the whole transfer, which may be slow.
	StallTimeout time.Duration
	// Silence replaces StallTimeout for the request bodies of gRPC calls, which may be silent for longer. Data of the
	// answer also restarts it. Zero means no bound.
	Silence time.Duration
	// MaxHeader is the maximum size of a request's head in bytes; net/http adds 4 KiB.
	MaxHeader int
	Log       *slog.Logger
}

// idleTimeout is the time for which an idle connection is kept open.
const idleTimeout = 2 * time.Minute

// Server returns a server for h with the bounds of c. Its connections must come from [Connections].
func Server(h http.Handler, c Client) *http.Server {
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, h) }),
		// Otherwise "OPTIONS *" would not be counted.
		DisableGeneralOptionsHandler: true,

		ReadHeaderTimeout: c.HeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    c.MaxHeader,
		HTTP2:             &bounds,
		ErrorLog:          slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug),
	}
	BoundHeadsTLS(server, c.HeaderTimeout)
	return server
}

func (c Client) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if r.ProtoMajor == 2 {
		s := boundStream(w, r, c.StallTimeout)
		defer s.end()
		w = s.exchange
		if r.ContentLength == 0 {
			r.Body = http.NoBody
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		next.ServeHTTP(w, r)
		return
	}
	b := &clientBody{ReadCloser: r.Body, control: http.NewResponseController(w), stall: c.StallTimeout}
	defer b.linger()
	ctx := r.Context()
	if r.ProtoMajor == 2 && isGRPC(r.Header) {
		b.stall = c.Silence
		ctx = context.WithValue(ctx, callKey{}, b)
		b.exchange = exchange.Join(w, r, nil, b)
		defer b.Take(nil)
	}
	b.await()
	// The body is replaced only in a copy of the request. From the original body, the server knows whether a client
	// waits for a 100. In that case, a denial must not wait for the body, because the client does not send it.
	own := r.WithContext(ctx)
	own.Body = b
	next.ServeHTTP(w, own)
}

// lingering bounds the time for which the server reads an unwanted body before it sends an answer.
const lingering = 500 * time.Millisecond

// clientBody is the body of a request. It marks read errors as errors of the client, and bounds the wait for the
// next bytes.
type clientBody struct {
	io.ReadCloser
	stall time.Duration // zero means no bound
	until time.Time     // the deadline for all reads; zero means no bound
	ended func()        // called when the trailers have arrived; may be nil

	// The following fields are for a gRPC call: whether the upstream has answered, and the body of its answer.
	answered bool
	answer   atomic.Pointer[answerBody]
	exchange *exchange.Exchange
	status   int // the status of the gateway's withheld answer; 0 if the gateway withheld none

	mu      sync.Mutex // guards control, which must not be used after the handler has returned
	control *http.ResponseController
	done    bool // the body has been read, or is not needed
}

// clientError is an error in reading from the client.
type clientError struct{ err error }

func (e *clientError) Error() string { return "reading from the client: " + e.err.Error() }
func (e *clientError) Unwrap() error { return e.err }

func (b *clientBody) await() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var end time.Time
	if b.stall > 0 {
		end = time.Now().Add(b.stall)
	}
	if !b.until.IsZero() && (end.IsZero() || b.until.Before(end)) {
		end = b.until
	}
	if !b.done {
		_ = b.control.SetReadDeadline(end)
	}
}

// finish sets the last deadline, unless it has been set before.
func (b *clientBody) finish(end time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.done = true
		_ = b.control.SetReadDeadline(end)
	}
}

// open reports whether more of the body may be read.
func (b *clientBody) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.done
}

// linger bounds the time for reading the rest of the body.
func (b *clientBody) linger() { b.finish(time.Now().Add(lingering)) }

// Close is called when the rest of the body is not needed. The server's own Close reads the rest.
func (b *clientBody) Close() error {
	b.linger()
	return b.ReadCloser.Close()
}

// SetReadDeadline sets a deadline for all reads, in addition to the bound for each read.
func (b *clientBody) SetReadDeadline(t time.Time) error {
	b.until = t
	return nil
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.await()
	n, err := b.ReadCloser.Read(p)
	if answer := b.answer.Load(); answer != nil {
		answer.moved()
	}
	switch {
	case err == io.EOF:
		// The server continues to read from the connection, to notice when the client leaves.
		b.finish(time.Time{})
		if b.ended != nil {
			b.ended()
		}
	case err != nil:
		err = &clientError{err}
	}
	return n, err
}

// connectTimeout bounds the time to connect to an upstream, and separately that of the TLS handshake.
const connectTimeout = 5 * time.Second

func transport(u *Upstream) *http.Transport {
	dial := u.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: connectTimeout}).DialContext
	}
	t := &http.Transport{
		DialContext:            dial,
		TLSHandshakeTimeout:    connectTimeout,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: u.CA},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the client gets the encoding that it requested
		MaxConnsPerHost:        u.MaxConnections,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        90 * time.Second,
		ResponseHeaderTimeout:  u.Timeout,
		MaxResponseHeaderBytes: maxHead,
		ExpectContinueTimeout:  time.Second,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter},
	}
	if u.URL.Scheme == "h2c" {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	return t
}
