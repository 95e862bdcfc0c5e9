package e2e

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sluicehq/sluice/internal/testkit"
)

// The gateway waits for the end of an HTTP/2 head only as long as for one of HTTP/1.1, at every address that accepts
// HTTP/2.
func TestUnfinishedHeads(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	doors := []string{"--upstream", "sample", "--check", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--header-timeout", "500ms", "--idle-timeout", "1h", "--policy", testkit.File(t, "policy.yaml", wide)}
	g := secure(t, ours, doors...)
	for name, at := range map[string]struct {
		addr string
		tls  *tls.Config
	}{
		"gateway": {g.Addr, ours.Client()},
		"--check": {g.Check, nil},
		"--grpc":  {g.Grpc, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, f := dialHTTP2(t, at.addr, at.tls)
			var b strings.Builder
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(callHeaders(&b))}); err != nil {
				t.Fatal(err)
			}
			var err error
			for err == nil {
				_, err = f.ReadFrame()
			}
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection stays open")
			}
		})
	}
}
