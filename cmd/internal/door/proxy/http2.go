package proxy

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/sluicehq/sluice/internal/exchange"
)

// pingAfter is the time without data on an HTTP/2 connection after which a ping checks the other end.
const pingAfter = time.Minute

// bounds limits the cost of one HTTP/2 connection. A stream that the client resets counts until its handler has
// returned. In addition to MaxConcurrentStreams, about four times as many streams may wait; more of them close
// the connection.
var bounds = http.HTTP2Config{
	MaxConcurrentStreams:          128,
	MaxReadFrameSize:              16 << 10,
	MaxReceiveBufferPerConnection: 512 << 10,
	MaxReceiveBufferPerStream:     256 << 10,
	SendPingTimeout:               pingAfter,
}

// malformed returns the answer to an HTTP/2 request that cannot be passed on unchanged, or nil for other requests.
// Either RFC 9113 calls the request malformed but net/http accepts it, or it would be a different request in
// HTTP/1.
func malformed(r *http.Request) *problem {
	switch {
	case r.Method == "PRI": // the preface of HTTP/2, which net/http passes on as a request
		return &problem{http.StatusHTTPVersionNotSupported, "This gateway speaks HTTP/2 only over TLS, negotiated by ALPN."}
	case !httpguts.ValidHeaderFieldName(r.Method):
		return bad("The :method has invalid characters.")
	case strings.IndexByte(r.RequestURI, ' ') >= 0:
		return bad("The :path must not contain spaces.")
	case !oneHost(r):
		return bad("Host and :authority must be the same.")
	case !rightLength(r):
		return bad("The Content-Length must be a single number, and equal the length of the body.")
	}
	for _, values := range r.Header {
		for _, v := range values {
			if strings.Trim(v, " \t") != v {
				return bad("A field must not begin or end with a space.")
			}
		}
	}
	delete(r.Header, "Host")
	if r.ContentLength == 0 {
		r.Trailer = nil // trailers can no longer arrive
	}
	return nil
}

func bad(detail string) *problem { return &problem{http.StatusBadRequest, detail} }

func oneHost(r *http.Request) bool {
	hosts := r.Header["Host"]
	return len(hosts) == 0 || len(hosts) == 1 && hosts[0] == r.Host
}

// rightLength reports whether the Content-Length, if any, equals the length that net/http uses.
func rightLength(r *http.Request) bool {
	lengths, ok := r.Header["Content-Length"]
	return !ok || len(lengths) == 1 && lengths[0] == strconv.FormatInt(r.ContentLength, 10)
}

var errUnread = errors.New("the client does not read its answer")

// stall bounds the writes of an answer on an HTTP/2 stream. A deadline for writes to the connection is not enough,
// because a client may read from the connection without accepting data of one stream.
type stall struct {
	own      exchange.Exchange
	exchange *exchange.Exchange
	after    time.Duration
	timer    *time.Timer // runs during a write; nil before the first write
	ended    chan struct{}
	late     bool
}

// boundStream bounds the writes of the answer to r. The field exchange of the result is the writer for the answer:
// a write fails if the client does not read for the duration after.
func boundStream(w http.ResponseWriter, r *http.Request, after time.Duration) *stall {
	s := &stall{after: after}
	s.exchange = exchange.Join(w, r, &s.own, nil)
	s.exchange.Bound = s
	return s
}

// BoundStreams ends an HTTP/2 stream if the client does not read the answer for the given duration.
func BoundStreams(next http.Handler, after time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			s := boundStream(w, r, after)
			defer s.end()
			w = s.exchange
		}
		next.ServeHTTP(w, r)
	})
}

// Begin starts the timer of a write.
func (s *stall) Begin() error {
	switch {
	case s.late:
		return errUnread
	case s.timer == nil:
		s.ended = make(chan struct{})
		s.timer = time.AfterFunc(s.after, s.reset)
	default:
		s.timer.Reset(s.after)
	}
	return nil
}

// End stops the timer. If the timer has fired, End waits for reset, because the server's writer must not be used
// after the handler has returned.
func (s *stall) End() error {
	if s.timer.Stop() {
		return nil
	}
	<-s.ended
	s.late = true
	return errUnread
}

// reset ends the stream.
func (s *stall) reset() {
	_ = http.NewResponseController(s.exchange.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	close(s.ended)
}

// end bounds the writes of the server after the handler has returned.
func (s *stall) end() {
	if s.timer != nil && !s.late {
		_ = http.NewResponseController(s.exchange.ResponseWriter).SetWriteDeadline(time.Now().Add(s.after))
	}
}
