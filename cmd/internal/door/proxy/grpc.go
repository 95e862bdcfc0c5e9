package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
)

// isGRPC reports whether a request is a gRPC call.
func isGRPC(h http.Header) bool {
	kind := h["Content-Type"]
	if len(kind) != 1 {
		return false
	}
	rest, ok := strings.CutPrefix(kind[0], "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// callKey is the key of the *clientBody in the context of a gRPC call.
type callKey struct{}

func callOf(resp *http.Response) *clientBody {
	call, _ := resp.Request.Context().Value(callKey{}).(*clientBody)
	return call
}

// Head withholds the gateway's own answer to a gRPC call. Take then sends the answer as a gRPC status, because a
// client would turn the HTTP status 429 into UNAVAILABLE without a retry time. Head does not change answers of the
// upstream.
func (b *clientBody) Head(status int) int {
	if b.answered || status < 400 {
		return status
	}
	b.status = status
	return 0
}

// Take sends the withheld answer, if any. Later calls do nothing. The parameter body is the body of the answer.
func (b *clientBody) Take(body []byte) {
	if b.status == 0 {
		return
	}
	var answer struct{ Detail string }
	if json.Unmarshal(body, &answer) != nil || answer.Detail == "" {
		answer.Detail = http.StatusText(b.status)
	}
	h := b.exchange.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(grpcStatus(b.status)))
	h.Set("Grpc-Message", grpcMessage(answer.Detail))
	if wait, err := strconv.ParseUint(h.Get("Retry-After"), 10, 32); err == nil {
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatUint(wait*1000, 10))
	}
	b.exchange.ResponseWriter.WriteHeader(http.StatusOK)
	b.status = 0
}

// grpcStatus returns the gRPC code for an answer of the gateway.
func grpcStatus(status int) int {
	switch status {
	case http.StatusBadRequest:
		return 3 // INVALID_ARGUMENT
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return 4 // DEADLINE_EXCEEDED
	case http.StatusForbidden:
		return 7 // PERMISSION_DENIED
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return 8 // RESOURCE_EXHAUSTED
	case http.StatusNotImplemented, http.StatusMisdirectedRequest:
		return 12 // UNIMPLEMENTED
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		return 14 // UNAVAILABLE
	}
	return 2 // UNKNOWN
}

// grpcMessage escapes characters that cannot be in a header field.
func grpcMessage(s string) string {
	return printable.Percent(s, func(c byte) bool { return c < ' ' || c > '~' || c == '%' })
}
