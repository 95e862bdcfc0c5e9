package e2e

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sluicehq/sluice/internal/testkit"
)

// A head of HTTP/2 that does not end is waited for as long as one of HTTP/1.1, at every address that
// speaks it.
func TestUnfinishedHeads(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	doors := []string{"--upstream", "sample", "--check", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--header-timeout", "500ms", "--idle-timeout", "1h", "--policy", testkit.File(t, "policy.yaml", wide)}
	g := secure(t, ours, doors...)
	secret := ours.client()
	secret.NextProtos = []string{"h2"}
	for name, at := range map[string]struct {
		addr string
		tls  *tls.Config
	}{
		"gateway": {g.Addr, secret},
		"--check": {g.Check, nil},
		"--grpc":  {g.Grpc, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c net.Conn
			var err error
			if at.tls != nil {
				c, err = tls.Dial("tcp", at.addr, at.tls)
			} else {
				c, err = net.Dial("tcp", at.addr)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
				t.Fatal(err)
			}
			f := http2.NewFramer(c, c)
			var b strings.Builder
			if err := f.WriteSettings(); err != nil {
				t.Fatal(err)
			}
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(callHeaders(&b))}); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = f.ReadFrame()
			}
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection stays")
			}
		})
	}
}
