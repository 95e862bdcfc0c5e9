//go:build long

package e2e

import (
	"net"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Streams that are reset at once, messages that never end, and connections that send nothing or HTTP/1.1 use bounded
// memory. Other clients are still served.
func TestLongEnvoyAbuse(t *testing.T) {
	t.Parallel()
	policy := testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: users, key: [attr:user], limit: 5/hour}]\n")
	g := serve(t, "--grpc", "127.0.0.1:0", "--policy", policy, "--header-timeout", "2s")
	conn := dialGRPC(t, g, insecure.NewCredentials())
	var idle []net.Conn
	for i := range 50 {
		c, err := net.Dial("tcp", g.Grpc)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n"))
		}
		idle = append(idle, c)
	}
	before := g.Metric("process_resident_memory_bytes")
	for range 4 {
		rapidReset(t, g.Grpc, 10_000)
	}
	// The length of a message of 4 GiB. Its bytes never come.
	endlessMessage(t, g.Grpc)
	if out, err := askEnvoy(t, conn, "edge", "user", "a"); err != nil || out.GetOverallCode() != pb.RateLimitResponse_OK {
		t.Errorf("afterwards: %v %v", out, err)
	}
	most := 100.0
	if testkit.Race {
		most *= 5
	}
	if grown := g.Metric("process_resident_memory_bytes") - before; grown > most*(1<<20) {
		t.Errorf("40,000 streams that were reset used %.0f MiB", grown/(1<<20))
	}
	for _, c := range idle {
		readAll(t, c) // until the gateway closes it
	}
}

// unread opens an HTTP/2 connection, and drops all frames that arrive.
func unread(t *testing.T, addr string) *http2.Framer {
	t.Helper()
	_, f := dialHTTP2(t, addr, nil)
	go func() {
		for {
			if _, err := f.ReadFrame(); err != nil {
				return
			}
		}
	}()
	return f
}

// rapidReset opens streams and resets each at once, until the server closes the connection.
func rapidReset(t *testing.T, addr string, streams int) {
	t.Helper()
	f := unread(t, addr)
	var b strings.Builder
	for i := range streams {
		id := uint32(2*i + 1)
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(callHeaders(&b)), EndHeaders: true}) != nil || f.WriteRSTStream(id, http2.ErrCodeCancel) != nil {
			return // the server has closed the connection
		}
	}
}

// endlessMessage announces a message of 4 GiB, on many streams.
func endlessMessage(t *testing.T, addr string) {
	t.Helper()
	f := unread(t, addr)
	var b strings.Builder
	for i := range 100 {
		id := uint32(2*i + 1)
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(callHeaders(&b)), EndHeaders: true})
		if f.WriteData(id, false, []byte("\x00\xff\xff\xff\xffabc")) != nil {
			return
		}
	}
}
