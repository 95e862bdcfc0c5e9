package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// problem is an answer of the gateway itself, in the form of RFC 9457.
type problem struct {
	status int
	detail string
}

var bodyLate = &problem{http.StatusRequestTimeout, "The body did not arrive in time."}

func tooLarge(limit int64) *problem {
	return &problem{http.StatusRequestEntityTooLarge, fmt.Sprintf("The body may have at most %d bytes.", limit)}
}

func (p *problem) write(w http.ResponseWriter) {
	body, _ := json.Marshal(struct { // strings and numbers always marshal
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(p.status), p.status, p.detail})
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.status)
	_, _ = w.Write(append(body, '\n'))
}

// fail answers a request that the upstream did not answer. If a connection was open, the upstream may have received
// the request and acted on it. So the request counts for rules that depend on the outcome.
func (g *gateway) fail(w http.ResponseWriter, r *http.Request, err error) {
	closeAfter(w.Header(), r)
	x := exchange.Join(w, r, nil, nil) // returns the exchange of ServeHTTP
	if !notReceived(err) {
		x.Lost = r.Context().Err() != nil || timedOut(err) // the upstream may still be working on the request
		httplimit.Settle(r.Context(), policy.Outcome{Verdict: policy.Counts})
	}
	p, own := blameClient(err), true
	switch {
	case p != nil:
	case errors.Is(err, errStreams):
		p = &problem{http.StatusServiceUnavailable, "Too many streams are open."}
	case errors.Is(err, errSwitch):
		p, own = &problem{http.StatusBadGateway, "The upstream switched to a protocol other than the requested WebSocket."}, false
	case r.Context().Err() != nil && r.ContentLength == 0:
		panic(http.ErrAbortHandler) // the client has left
	case r.Context().Err() != nil:
		// The server also cancels the context when reading the body fails, and the cancellation may be noticed
		// before the error.
		p = bodyLate
	default:
		own = false
		g.health.down(g.Log, g.URL.Host, err)
		p = &problem{http.StatusBadGateway, "The upstream cannot be reached."}
		if timedOut(err) {
			p = &problem{http.StatusGatewayTimeout, "The upstream did not answer in time."}
		}
	}
	x.Own = own
	p.write(w)
}

// kindOf returns the kind of err, the error that occurred in place of a response to r.
func kindOf(r *http.Request, err error) telemetry.UpstreamError {
	text := err.Error() // many errors of net/http and crypto/tls have no type
	contains := func(some ...string) bool {
		return slices.ContainsFunc(some, func(s string) bool { return strings.Contains(text, s) })
	}
	is := func(some ...error) bool {
		return slices.ContainsFunc(some, func(e error) bool { return errors.Is(err, e) })
	}
	_, network := errors.AsType[*net.OpError](err)
	_, syntax := errors.AsType[textproto.ProtocolError](err)
	switch {
	case r.Context().Err() != nil || blameClient(err) != nil:
		return telemetry.CanceledError
	case notReceived(err):
		return telemetry.ConnectError
	case is(http.ErrSchemeMismatch) || contains("tls: ", "TLS handshake"):
		return telemetry.TLSError
	case timedOut(err):
		return telemetry.TimeoutError
	case syntax || is(errSwitch, errStatus, errHead) || contains("malformed", "PROTOCOL_ERROR", "exceeded", "Content-Length", "transfer encoding"):
		return telemetry.MalformedError
	case network || is(io.EOF, io.ErrUnexpectedEOF, net.ErrClosed) || contains("closed", "lost", "GOAWAY", "stream error"):
		return telemetry.ClosedError
	}
	return telemetry.OtherError
}

func timedOut(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// notReceived reports whether the upstream certainly did not receive the request.
func notReceived(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// blameClient returns the answer if err comes from reading the client's body, or else nil.
func blameClient(err error) *problem {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(large.Limit)
	}
	client, ok := errors.AsType[*clientError](err)
	switch {
	case !ok:
		return nil
	case timedOut(client.err): // not err, which may itself be a net.Error
		return bodyLate
	}
	return &problem{http.StatusBadRequest, "The body broke off or is malformed."}
}

// health logs when the upstream becomes unavailable, and when it is available again. It does not log each failed
// request.
type health struct{ isDown atomic.Bool }

func (h *health) down(log *slog.Logger, upstream string, err error) {
	if h.isDown.CompareAndSwap(false, true) {
		log.Error("upstream does not respond", "upstream", upstream, "error", err)
	}
}

func (h *health) up(log *slog.Logger) {
	if h.isDown.Load() && h.isDown.CompareAndSwap(true, false) {
		log.LogAttrs(context.Background(), slog.LevelInfo, "upstream responds again")
	}
}
