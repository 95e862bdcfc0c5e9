package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// wsKey and wsAccept are the example of RFC 6455, section 1.3.
const (
	wsKey     = "dGhlIHNhbXBsZSBub25jZQ=="
	wsAccept  = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
	handshake = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + wsKey + "\r\n"
)

// An upstream that says 101 without having understood the handshake, perhaps because a
// client may choose its status, opens no tunnel.
func TestSwitchNeedsProof(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	says := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\n%s\r\n", <-says)
				_, _ = io.Copy(c, r) // what comes through the tunnel comes back
			}()
		}
	}()
	g := serve(t, "--policy", testkit.File(t, "p.yaml", wide), "--upstream", "http://"+l.Addr().String())
	const plain = "GET /status/101 HTTP/1.1\r\nHost: a\r\n"
	for _, test := range []struct {
		name, send, says string
		status           int
	}{
		{"all right", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n", 101},
		{"no proof", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n", 502},
		{"wrong proof", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsKey + "\r\n", 502},
		{"two proofs", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsAccept + "\r\nSec-WebSocket-Accept: x\r\n", 502},
		{"another protocol", handshake + "Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n", 502},
		{"not asked", plain, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + wsAccept + "\r\n", 502},
		{"not asked, no upgrade", plain, "", 502},
		{"asked for h2c", plain + "Connection: Upgrade\r\nUpgrade: h2c\r\n", "Connection: Upgrade\r\nUpgrade: h2c\r\n", 502},
	} {
		t.Run(test.name, func(t *testing.T) {
			says <- test.says
			c := dial(t, g, test.send+"\r\n")
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != test.status {
				t.Fatalf("%s, want %d", resp.Status, test.status)
			}
			if test.status == 101 {
				fmt.Fprint(c, "ping\n")
				if line, err := r.ReadString('\n'); line != "ping\n" {
					t.Errorf("%q, %v", line, err)
				}
			}
		})
	}
}
