package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// isGRPC reports whether a request is a call of gRPC.
func isGRPC(h http.Header) bool {
	kind := h["Content-Type"]
	if len(kind) != 1 {
		return false
	}
	rest, ok := strings.CutPrefix(kind[0], "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// callKey is where the context of a call of gRPC has its *clientBody.
type callKey struct{}

func callOf(resp *http.Response) *clientBody {
	call, _ := resp.Request.Context().Value(callKey{}).(*clientBody)
	return call
}

// callWriter says in the words of gRPC what the gateway itself answers to a call: a client makes
// of a 429 that the server is not there, and does not learn when to come back. What the
// upstream says passes as it is.
type callWriter struct {
	http.ResponseWriter
	call   *clientBody
	status int // of the answer that is told in other words
}

// Unwrap is for http.ResponseController.
func (c *callWriter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *callWriter) WriteHeader(status int) {
	if c.call.answered || status < 400 {
		c.ResponseWriter.WriteHeader(status)
		return
	}
	c.status = status
}

func (c *callWriter) Write(p []byte) (int, error) {
	if c.status == 0 {
		return c.ResponseWriter.Write(p)
	}
	c.end(p)
	return len(p), nil
}

// end sends the answer, if there is one to tell in other words, whose body is p. It does so once.
func (c *callWriter) end(p []byte) {
	if c.status <= 0 {
		return
	}
	var said struct{ Detail string }
	if json.Unmarshal(p, &said) != nil || said.Detail == "" {
		said.Detail = http.StatusText(c.status)
	}
	h := c.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(grpcStatus(c.status)))
	h.Set("Grpc-Message", grpcMessage(said.Detail))
	if wait, err := strconv.ParseUint(h.Get("Retry-After"), 10, 32); err == nil {
		h.Set("Grpc-Retry-Pushback-Ms", strconv.FormatUint(wait*1000, 10))
	}
	c.ResponseWriter.WriteHeader(http.StatusOK)
	c.status = -1
}

// grpcStatus returns the code that stands for an answer of the gateway.
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

// grpcMessage escapes what cannot stand in a field.
func grpcMessage(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
