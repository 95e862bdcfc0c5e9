package proxy

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// An answer does not wait for an unread body: not at all if the client waits for 100 Continue, and otherwise only for
// the time lingering.
func TestAnswersDoNotWaitForBodies(t *testing.T) {
	t.Parallel()
	for rest, want := range map[string]time.Duration{
		"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n":          0,
		"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n": 0,
		"Content-Length: 200000\r\n\r\nx":                            lingering,
		"Transfer-Encoding: chunked\r\n\r\n5\r\nx":                   lingering,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }),
				Client{HeaderTimeout: time.Minute, StallTimeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
			network := testkit.NewPipes()
			go s.Serve(network)
			client, err := network.Dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			go io.WriteString(client, "POST / HTTP/1.1\r\nHost: a\r\n"+rest)
			resp, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); resp.StatusCode != 429 || !resp.Close || took != want {
				t.Errorf("%q: %s after %v, close %v, want 429 after %v", rest, resp.Status, took, resp.Close, want)
			}
			client.Close()
			s.Close()
			synctest.Wait()
		})
	}
}
