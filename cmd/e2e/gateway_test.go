package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/sluicehq/sluice/internal/testkit"
)

const wide = `
version: 1
trusted_proxies: [127.0.0.0/8]
rules:
  - name: wide
    key: [client_ip]
    limit: 100000/day
`

// before starts a gateway with a wide policy in front of an upstream.
func before(t *testing.T, h http.Handler, args ...string) *gateway {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	return serve(t, append([]string{"--policy", testkit.File(t, "policy.yaml", wide), "--upstream", upstream.URL}, args...)...)
}

// parts is an upstream that sends special responses, each at its own path.
type parts struct {
	*http.ServeMux
	events        chan string   // for /events
	arrived, left chan struct{} // for /held/hang
}

func newParts() *parts {
	p := &parts{http.NewServeMux(), make(chan string), make(chan struct{}), make(chan struct{})}
	p.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", `"upstream";r=1;t=1`)
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints) // after this, httputil.ReverseProxy clears the header
		_, _ = io.Copy(w, r.Body)
	})
	p.HandleFunc("/trailers", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", strconv.Itoa(len(body))+r.Trailer.Get("X-Asked"))
	})
	p.Handle("/websocket", websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	p.HandleFunc("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range p.events {
			fmt.Fprintf(w, "data: %s\n\n", event)
			_ = http.NewResponseController(w).Flush()
		}
	})
	p.HandleFunc("/breaks/{how}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("how") == "length" {
			w.Header().Set("Content-Length", "10")
		}
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	p.HandleFunc("/held/quick", func(http.ResponseWriter, *http.Request) {})
	p.HandleFunc("/held/hang", func(_ http.ResponseWriter, r *http.Request) {
		close(p.arrived)
		<-r.Context().Done()
		close(p.left)
	})
	return p
}

// Special responses pass unchanged.
func TestGateway(t *testing.T) {
	t.Parallel()
	up := newParts()
	opened := testkit.File(t, "opened.yaml", wide+`  - {name: opened, match: /websocket, limit: 2/day, count: {status: [101]}}
  - {name: places, match: "/held/{how}", in_flight: 1}
`)
	g := before(t, up, "--policy", opened)
	for name, test := range map[string]func(*testing.T, *gateway, *parts){
		"informational": testInformational, "trailers": testTrailers, "WebSocket": testWebSocket,
		"events": testEvents, "breaks off": testBreaksOff, "client leaves": testClientLeaves,
	} {
		t.Run(name, func(t *testing.T) { test(t, g, up) })
	}
}

func testInformational(t *testing.T, g *gateway, _ *parts) {
	r := request(t, "POST", g.URL+"/early", "hello", "Expect", "100-continue")
	var early, continued atomic.Int32
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got100Continue: func() { continued.Add(1) },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints && h.Get("Link") != "" {
				early.Add(1)
			}
			return nil
		},
	}))
	resp, body := do(t, r)
	if body != "hello" || early.Load() != 1 || continued.Load() < 1 {
		t.Errorf("%s %q, %d early hints, %d × 100", resp.Status, body, early.Load(), continued.Load())
	}
	if got := resp.Header["Ratelimit"]; len(got) != 1 || !strings.HasPrefix(got[0], `"wide";r=`) {
		t.Errorf("RateLimit: %q", got)
	}
}

func testTrailers(t *testing.T, g *gateway, _ *parts) {
	r := request(t, "POST", g.URL+"/trailers", "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("four")), -1
	r.Trailer = http.Header{"X-Asked": {"!"}}
	resp, body := do(t, r)
	if body != "four" || resp.Trailer.Get("X-Sum") != "4!" {
		t.Errorf("%q with the trailers %v", body, resp.Trailer)
	}
}

// The handshake of a WebSocket counts as a 101.
func testWebSocket(t *testing.T, g *gateway, _ *parts) {
	for i := range 3 {
		c, err := websocket.Dial("ws://"+g.Addr+"/websocket", "", g.URL)
		if (err == nil) != (i < 2) {
			t.Fatalf("WebSocket %d: %v", i+1, err)
		}
		if err != nil {
			break
		}
		defer c.Close()
		sent, got := fmt.Sprint("message ", i), ""
		if err := websocket.Message.Send(c, sent); err != nil {
			t.Fatal(err)
		}
		if err := websocket.Message.Receive(c, &got); err != nil || got != sent {
			t.Fatalf("%q, %v, want %q", got, err, sent)
		}
	}
}

// The client gets an event before the upstream sends the next one.
func testEvents(t *testing.T, g *gateway, up *parts) {
	go func() { up.events <- "0" }()
	resp, err := http.Get(g.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	defer close(up.events)
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
		lines.Scan()
		if i < 2 {
			up.events <- fmt.Sprint(i + 1)
		}
	}
}

// A response that breaks off must not look complete.
func testBreaksOff(t *testing.T, g *gateway, _ *parts) {
	for _, path := range []string{"/breaks/length", "/breaks/chunks"} {
		resp, err := http.Get(g.URL + path)
		if err != nil {
			continue // it broke off before the head was sent
		}
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: %s, %q and no error", path, resp.Status, body)
		}
		resp.Body.Close()
	}
}

// When a client leaves, its request to the upstream is cancelled, and its permit is released.
func testClientLeaves(t *testing.T, g *gateway, up *parts) {
	c := dial(t, g, "GET /held/hang HTTP/1.1\r\nHost: a\r\n\r\n")
	<-up.arrived
	status, body := get(t, g.URL+"/held/quick")
	if status != http.StatusTooManyRequests || !strings.Contains(body, "Too many requests at once: limit places is 1. Retry in 1 s.") {
		t.Errorf("beside a request under way: %d %s", status, body)
	}
	c.Close()
	select {
	case <-up.left:
	case <-time.After(patience):
		t.Error("the upstream continues without a client")
	}
	testkit.Await(t, "the permit is free", func() bool { status, _ := get(t, g.URL+"/held/quick"); return status == http.StatusOK })
}

// Clients that stop sending or reading are disconnected, and do not hold the upstream meanwhile. Clients that take
// longer in total, but never stop for that long, are served.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	letGo, endless, upload := make(chan struct{}), make(chan error, 1), make(chan error, 2)
	large := bytes.Repeat([]byte("x"), 64<<10)
	up := http.NewServeMux()
	up.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(large); err != nil {
				endless <- err
				return
			}
		}
	})
	up.HandleFunc("/upload", func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		upload <- err
	})
	up.HandleFunc("/steady", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	up.HandleFunc("/late", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		<-letGo
		_, _ = w.Write(body)
	})
	g := before(t, up, "--header-timeout", "2s", "--stall-timeout", "2s")

	steady := dial(t, g, "POST /steady HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
	steadyEnded := make(chan error, 1)
	go func() {
		var err error
		for going := true; going && err == nil; {
			select {
			case <-letGo:
				_, err = io.WriteString(steady, "1\r\ny\r\n0\r\n\r\n")
				going = false
			case <-time.After(20 * time.Millisecond):
				_, err = io.WriteString(steady, "1\r\nx\r\n")
			}
		}
		steadyEnded <- err
	}()
	late := dial(t, g, "POST /late HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody")

	head := dial(t, g, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
	small := dial(t, g, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf") // this request does not even reach the upstream
	half := dial(t, g, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nhalf")
	dial(t, g, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
	if got := readAll(t, head); got != "" && !strings.Contains(got, " 408 ") {
		t.Errorf("half a head: %q", got)
	}
	for _, c := range []net.Conn{small, half} {
		if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
			t.Errorf("half a body: %q", got)
		}
	}
	if err := <-upload; err == nil {
		t.Error("the upstream has read half a body without an error")
	}
	select {
	case <-endless:
	case <-time.After(patience):
		t.Error("a client that does not read holds the upstream")
	}
	close(letGo)
	if err := <-steadyEnded; err != nil {
		t.Error(err)
	}
	if got := readAll(t, steady); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, "y") {
		t.Errorf("slow and steady: %.200q", got)
	}
	if got := readAll(t, late); !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.HasSuffix(got, "body") {
		t.Errorf("a response that takes longer than a body may stall: %q", got)
	}
}

// readAll reads until the other side closes.
func readAll(t testing.TB, c net.Conn) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the connection stays open after %q", all)
	}
	return string(all)
}
