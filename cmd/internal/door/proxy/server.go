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

// Client has the time limits for clients.
type Client struct {
	// HeaderTimeout bounds the time for the head of a request.
	HeaderTimeout time.Duration
	// StallTimeout closes connections on which no byte of a body moves, in either
	// direction, for this long. It does not bound the whole: slow is fine.
	StallTimeout time.Duration
	// Silence replaces StallTimeout for a call of gRPC, which may be silent for a while. Parts of the answer end a
	// silence, too. Zero is no bound.
	Silence time.Duration
	// MaxHeader is the largest head of a request in bytes; net/http adds 4 KiB.
	MaxHeader int
	Log       *slog.Logger
}

// idleTimeout is how long a connection is kept for a next request.
const idleTimeout = 2 * time.Minute

// Server returns a server of h that is patient within bounds. Its connections come from
// [Connections].
func Server(h http.Handler, c Client) *http.Server {
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, h) }),
		// "OPTIONS *" is a request like any other, and to be counted.
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
	// The server's own request keeps its body: from it the server knows that a client waits for a 100, and that a
	// denial must not wait for a body that is never sent.
	own := r.WithContext(ctx)
	own.Body = b
	next.ServeHTTP(w, own)
}

// lingering is how long the server reads an unwanted body before it sends an answer.
const lingering = 500 * time.Millisecond

// clientBody is the body of a request. Its errors are marked as the client's, and it does
// not wait for ever for the next bytes.
type clientBody struct {
	io.ReadCloser
	stall time.Duration // zero is no bound
	until time.Time     // a bound for all that is read, if it is not zero
	ended func()        // called when the trailers have come; may be nil

	// Of a call of gRPC: that the upstream has answered, and the body of it.
	answered bool
	answer   atomic.Pointer[answerBody]
	exchange *exchange.Exchange
	status   int // of an own answer that is sent in another form; 0: none

	mu      sync.Mutex // for what must not be used when the handler has returned
	control *http.ResponseController
	done    bool // has been read, or will not be
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

// finish sets the last deadline, unless that has been done.
func (b *clientBody) finish(end time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.done {
		b.done = true
		_ = b.control.SetReadDeadline(end)
	}
}

// open reports whether more may come.
func (b *clientBody) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.done
}

// linger bounds the reading of what is left, if anything is.
func (b *clientBody) linger() { b.finish(time.Now().Add(lingering)) }

// Close is called by a reader that wants no more, and the server's body reads on in it.
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
	if answer := b.answer.Load(); answer != nil {
		answer.moved()
	}
	switch {
	case err == io.EOF:
		// The server goes on reading, to learn whether the client is still there.
		b.finish(time.Time{})
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
		DisableCompression:     true, // what the client asked for is what it gets
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
