package httplimit

import (
	"context"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/memory"
)

var update = flag.Bool("update", false, "write the golden files")

func mustLimiter(tb testing.TB, store sluice.Store, limit string, a sluice.Algorithm) *sluice.Limiter {
	tb.Helper()
	l, err := sluice.ParseLimit(limit)
	if err != nil {
		tb.Fatal(err)
	}
	l.Algorithm = a
	limiter, err := sluice.NewLimiter(store, "", l)
	if err != nil {
		tb.Fatal(err)
	}
	return limiter
}

// pipes is a listener in memory, so that a real server runs on the clock of a bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// peerConn gives a pipe the address of a client.
type peerConn struct {
	net.Conn
	addr string
}

func (c peerConn) RemoteAddr() net.Addr { return addrString(c.addr) }

type addrString string

func (addrString) Network() string  { return "tcp" }
func (a addrString) String() string { return string(a) }

// exchange sends raw requests one after the other, each on a connection of its own, to
// a real server, and returns the raw responses. Call it in a bubble of synctest.
func exchange(t *testing.T, h http.Handler, requests ...string) (responses []string) {
	t.Helper()
	l := make(pipes)
	server := &http.Server{Handler: h}
	go server.Serve(l)
	for _, request := range requests {
		client, conn := net.Pipe()
		l <- peerConn{conn, "192.0.2.1:4711"}
		go io.WriteString(client, strings.ReplaceAll(request, "\n", "\r\n"))
		response, err := io.ReadAll(client)
		if err != nil {
			t.Fatal(err)
		}
		client.Close()
		responses = append(responses, strings.ReplaceAll(string(response), "\r\n", "\n"))
	}
	synctest.Wait() // for connections to end: Shutdown would let time pass until they have
	if err := server.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	return responses
}

func get(headers ...string) string { return do("GET", headers...) }

func do(method string, headers ...string) string {
	s := method + " /things HTTP/1.1\nHost: api.example\nConnection: close\n"
	for _, h := range headers {
		s += h + "\n"
	}
	return s + "\n"
}

var things = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "things\n")
})

// golden compares with testdata/name.golden. Nothing has to be left out: in the bubble
// it is the year 2000, and time stands still.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", file, got, want)
	}
}

func TestGolden(t *testing.T) {
	tests := []struct {
		name     string
		config   Config
		limit    string
		requests []string
	}{
		{"draft11", Config{Name: "per-ip"}, "2/minute", []string{get(), get(), get()}},
		{"draft7", Config{Dialect: answer.Draft7, XFields: answer.XDelta}, "1/minute", []string{get(), get()}},
		{"draft3", Config{Dialect: answer.Draft3, XFields: answer.NoXFields}, "1/minute", []string{get(), get()}},
		{"xonly", Config{Dialect: answer.NoRateLimit}, "1/hour burst 3", []string{get()}},
		{"none", Config{Dialect: answer.NoRateLimit, XFields: answer.NoXFields}, "1/hour", []string{get(), get()}},
		{"json", Config{}, "1/minute", []string{get(), get("Accept: application/json")}},
		{"text", Config{}, "1/minute", []string{get(), get("Accept: text/plain")}},
		{"head", Config{}, "1/minute", []string{do("HEAD"), do("HEAD")}},
		{"name", Config{Name: "a \"b\"\\c\nö"}, "1/minute", []string{get(), get()}},
		{"subsecond", Config{}, "3/250ms", []string{get(), get()}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := mustLimiter(t, memory.New(), test.limit, sluice.TokenBucket)
				h := test.config.Limit(limiter, nil)(things)
				golden(t, test.name, strings.Join(exchange(t, h, test.requests...), "\n----\n"))
			})
		})
	}
}

// The bubble's clock is the store's clock, too.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := mustLimiter(t, memory.New(), "1/minute", sluice.TokenBucket)
		h := Limit(limiter, nil)(things)
		first := exchange(t, h, get(), get())
		if !strings.HasPrefix(first[0], "HTTP/1.1 200 ") || !strings.HasPrefix(first[1], "HTTP/1.1 429 ") {
			t.Fatalf("got %q", first)
		}
		time.Sleep(time.Minute - time.Microsecond)
		if r := exchange(t, h, get())[0]; !strings.Contains(r, "\nRetry-After: 1\n") {
			t.Errorf("a microsecond early: %q", r)
		}
		time.Sleep(time.Microsecond)
		if r := exchange(t, h, get())[0]; !strings.HasPrefix(r, "HTTP/1.1 200 ") {
			t.Errorf("after the promised wait: %q", r)
		}
	})
}
