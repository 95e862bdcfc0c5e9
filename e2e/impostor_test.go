package e2e

import (
	"bytes"
	"net"
	"net/http"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
)

// What answers at the store's address may be no Redis: the gateway stays, and on_error decides.
func TestImpostor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	path := write(t, "policy.yaml", `version: 1
rules:
  - {name: open, match: GET /api/users, key: [client_ip], limit: 100000/minute, on_error: allow}
  - {name: closed, match: GET /api/search, key: [client_ip], limit: 100000/minute, on_error: deny}
`)
	g := serve(t, "--policy", path, "--upstream", "sample", "--store", server.URL())
	ask := func() (open, closed int) {
		open, _ = get(t, g.url+"/api/users")
		closed, _ = get(t, g.url+"/api/search?q=a")
		return open, closed
	}
	for name, says := range map[string][]byte{
		"a negative length":  []byte("$-5\r\n"),
		"a length of 80 GB":  []byte("*2000000000\r\n"),
		"five million lists": bytes.Repeat([]byte("*1\r\n"), 5_000_000),
		"unasked replies":    bytes.Repeat([]byte("+OK\r\n"), 1000),
	} {
		redistest.Eventually(t, "the store decides", func() bool {
			open, closed := ask()
			return open == http.StatusOK && closed == http.StatusOK
		})
		server.Kill()
		l, err := net.Listen("tcp", server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		connected := make(chan struct{})
		go func() {
			for first := true; ; first = false {
				c, err := l.Accept()
				if err != nil {
					return
				}
				if first {
					close(connected)
				}
				go func() {
					defer c.Close()
					_, _ = c.Read(make([]byte, 1<<10))
					_, _ = c.Write(says)
					_, _ = c.Read(make([]byte, 1<<10)) // until it is given up
				}()
			}
		}()
		asked := func() bool {
			select {
			case <-connected:
				return true
			default:
			}
			ask()
			return false
		}
		redistest.Eventually(t, "the gateway connects to it", asked)
		if open, closed := ask(); open != http.StatusOK || closed != http.StatusServiceUnavailable {
			t.Errorf("%s: on_error allow: %d, deny: %d", name, open, closed)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		server.Restart()
	}
	redistest.Eventually(t, "the store decides", func() bool {
		open, closed := ask()
		return open == http.StatusOK && closed == http.StatusOK
	})
}
