package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
)

// A body that trickles does not keep its request from being counted, or its connection
// open.
func TestTricklingBodies(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(u)
	t.Cleanup(upstream.Close)
	g := serve(t, "--upstream", upstream.URL, "--header-timeout", "1s", "--policy", write(t, "p.yaml",
		"version: 1\nrules: [{name: a, match: POST /login, key: [body:user], limit: 2/day}]\n"))
	var got []string
	for i := range 3 {
		c := dial(t, g, fmt.Sprintf("POST /login HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nuser=made-up-%d&x=", i))
		stop := make(chan struct{})
		go func() {
			for { // for as long as it is taken
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
					_, _ = io.WriteString(c, "x")
				}
			}
		}()
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		close(stop)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(resp.StatusCode))
		c.Close()
	}
	// They share one count, whatever they have begun with: the names are made up.
	if want := []string{"408", "408", "429"}; !slices.Equal(got, want) {
		t.Errorf("statuses %v, want %v", got, want)
	}
}

// What is too large to be looked into may be as slow as it likes, once it is decided about.
func TestSlowLargeBodies(t *testing.T) {
	t.Parallel()
	u := new(recorder)
	upstream := httptest.NewServer(u)
	t.Cleanup(upstream.Close)
	g := serve(t, "--upstream", upstream.URL, "--header-timeout", "1s", "--policy", write(t, "p.yaml",
		"version: 1\nrules: [{name: a, key: [body:user], limit: 2/day, ambiguous: charge}]\n"))
	const large = 65 << 10
	c := dial(t, g, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", large, strings.Repeat("x", large)))
	time.Sleep(1500 * time.Millisecond) // longer than the bound
	_, _ = io.WriteString(c, "1\r\ny\r\n0\r\n\r\n")
	if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
		t.Errorf("%.100q", got)
	}
	if seen := u.all(); len(seen) != 1 || !strings.HasSuffix(seen[0], "xy") {
		t.Errorf("the upstream has got %d requests", len(seen))
	}
}

// from opens a connection from an address of this machine.
func from(t *testing.T, g *gateway, address, send string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.DialContext(t.Context(), "tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_, _ = io.WriteString(c, send) // it may be closed already, which the test finds out
	return c
}

// served reports whether a request on c gets an answer, and not the end.
func served(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == 200
}

func awaitRoom(t *testing.T, g *gateway) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c := from(t, g, "127.0.0.1", "")
		ok := served(t, c)
		c.Close()
		if ok {
			return
		}
	}
	t.Fatal("there is no room after clients have left")
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const stranger = "version: 1\nrules: [{name: a, limit: 999/second}]\n"
	for _, test := range []struct {
		name, policy, address string
		args                  []string
		want                  int
	}{
		{"of one address", stranger, "127.0.0.1", []string{"--max-connections-per-address", "3"}, 3},
		{"of many addresses", stranger, "127.0.0.%d", []string{"--max-connections-per-address", "3"}, 6},
		{"of a proxy of ours", wide, "127.0.0.1", []string{"--max-connections-per-address", "3"}, 6},
		{"in all", wide, "127.0.0.%d", []string{"--max-connections", "4"}, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := serve(t, append(test.args, "--upstream", "sample", "--policy", write(t, "p.yaml", test.policy))...)
			var open []net.Conn
			for i := range 6 {
				address := test.address
				if strings.Contains(address, "%d") {
					address = fmt.Sprintf(address, i+1)
				}
				if c := from(t, g, address, ""); served(t, c) || len(open) < test.want {
					open = append(open, c)
				}
			}
			if len(open) != test.want {
				t.Errorf("%d connections are open, want %d", len(open), test.want)
			}
			for i, c := range open {
				if !served(t, c) {
					t.Errorf("connection %d does not answer", i)
				}
			}
			if got, want := metric(t, g, "sluice_connections"), float64(test.want); got != want {
				t.Errorf("/metrics: %v connections, want %v", got, want)
			}
			// There is room again when one has left.
			open[0].Close()
			awaitRoom(t, g)
		})
	}
}

// Clients that take all the connections that there are files for do not take the admin
// address.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(upstream.Close)
	g := beginAs(t, []string{"sh", "-c", `ulimit -n 200 && exec "$@"`, "sh"}, "--upstream", upstream.URL, "--policy", write(t, "p.yaml", wide))
	g.awaitStatus(g.admin+"/readyz", http.StatusOK)
	held := make([]net.Conn, 300)
	for i := range held {
		send := "GET / HTTP/1.1\r\nHost:" // and no more
		if i%2 == 0 {
			send = "GET /hang HTTP/1.1\r\nHost: a\r\n\r\n" // which holds a connection of the upstream, too
		}
		held[i] = from(t, g, fmt.Sprintf("127.0.0.%d", 1+i%100), send)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		for range 5 {
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
			resp, err := client.Get(g.admin + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
	}
	if n := metric(t, g, "process_open_fds"); n > 190 {
		t.Errorf("%v files are open", n)
	}
	for _, c := range held {
		c.Close()
	}
	awaitRoom(t, g)
	if log := g.log(); strings.Contains(log, "too many open files") || strings.Contains(log, "upstream does not answer") || !strings.Contains(log, "too many connections") {
		t.Error("the log does not say what has happened")
	}
}

// listen says nothing but the answer to "end".
func listen(c *websocket.Conn) {
	for {
		var got string
		if err := websocket.Message.Receive(c, &got); err != nil {
			return
		}
		if got == "end" {
			_ = websocket.Message.Send(c, got)
		}
	}
}

// streaming is an upstream with an event stream that beats, or is silent behind its first event.
func streaming(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/ws") {
		websocket.Handler(listen).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for {
		fmt.Fprint(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		beat := make(<-chan time.Time)
		if r.URL.Path == "/beats" {
			beat = time.After(100 * time.Millisecond)
		}
		select {
		case <-r.Context().Done():
			return
		case <-beat:
		}
	}
}

// Streams on which nothing moves end, and others do not.
func TestSilentStreams(t *testing.T) {
	t.Parallel()
	g := before(t, streaming, "--idle-timeout", "2s")
	t.Run("silent events", func(t *testing.T) {
		t.Parallel()
		if got := readAll(t, dial(t, g, "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n")); !strings.Contains(got, "data: x") || strings.HasSuffix(got, "0\r\n\r\n") {
			t.Errorf("%q", got)
		}
	})
	t.Run("silent WebSocket", func(t *testing.T) {
		t.Parallel()
		if got := readAll(t, dial(t, g, strings.Replace(handshake, "\r\n", "\r\nOrigin: http://a\r\nUpgrade: websocket\r\n", 1)+"\r\n")); !strings.HasPrefix(got, "HTTP/1.1 101 ") {
			t.Errorf("%q", got)
		}
	})
	t.Run("beating events", func(t *testing.T) {
		t.Parallel()
		lines := bufio.NewScanner(dial(t, g, "GET /beats HTTP/1.1\r\nHost: a\r\n\r\n"))
		for n := 0; n < 30; { // longer in all than the silence that is allowed
			if !lines.Scan() {
				t.Fatalf("the stream ends after %d events", n)
			}
			if strings.HasPrefix(lines.Text(), "data: ") {
				n++
			}
		}
	})
	t.Run("WebSocket on which only the client says something", func(t *testing.T) {
		t.Parallel()
		c, err := websocket.Dial("ws://"+g.addr+"/ws", "", g.url)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range 30 {
			time.Sleep(100 * time.Millisecond)
			if err := websocket.Message.Send(c, "x"); err != nil {
				t.Fatal(err)
			}
		}
		var got string
		if err := websocket.Message.Send(c, "end"); err != nil {
			t.Fatal(err)
		}
		if err := websocket.Message.Receive(c, &got); got != "end" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Streams are bounded in number, and one that has ended makes room.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	g := before(t, streaming, "--max-streams", "2")
	open := func(path string) (*http.Response, net.Conn) {
		c := dial(t, g, "GET "+path+" HTTP/1.1\r\nHost: a\r\n\r\n")
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp, c
	}
	first, c := open("/silent")
	ws, err := websocket.Dial("ws://"+g.addr+"/ws", "", g.url)
	if err != nil || first.StatusCode != 200 {
		t.Fatal(err, first.Status)
	}
	defer ws.Close()
	if third, _ := open("/silent"); third.StatusCode != 503 {
		t.Errorf("the third stream: %s", third.Status)
	}
	if _, err := websocket.Dial("ws://"+g.addr+"/ws", "", g.url); err == nil {
		t.Error("there is a third WebSocket")
	}
	c.Close()
	for end := time.Now().Add(patience); ; {
		again, c := open("/silent")
		if again.StatusCode == 200 {
			break
		}
		c.Close()
		if time.Now().After(end) {
			t.Fatal("a stream that has ended makes no room")
		}
	}
}

// The admin address answers for addresses and localhost, and for names only where they are
// set: a page whose name leads here reads nothing.
func TestAdminHost(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--admin-hosts", "sluice.internal,other")
	_, port, err := net.SplitHostPort(strings.TrimPrefix(g.admin, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"127.0.0.1:" + port: 200, "localhost:" + port: 200, "LOCALHOST.": 200, "[::1]:" + port: 200, "192.0.2.1": 200, "x.localhost": 200,
		"sluice.internal": 200, "Sluice.Internal:" + port: 200, "other:1": 200,
		"evil.test": 421, "evil.test:" + port: 421, "localhost.evil.test": 421, "127.0.0.1.evil.test": 421, "notlocalhost": 421, "a:b:c": 421,
	} {
		for _, path := range []string{"/healthz", "/metrics", "/none"} {
			r := request(t, "GET", g.admin+path, "")
			r.Host = host
			resp, body := do(t, r)
			if want := want; path == "/none" && want == 200 {
				continue
			} else if resp.StatusCode != want {
				t.Errorf("%s of %s: %s %s, want %d", path, host, resp.Status, body, want)
			}
		}
	}
}

// A refusal does not wait for a body that nobody wants, and a client that asks before it
// sends one is told so at once.
func TestRefusalsDoNotWaitForBodies(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(new(recorder))
	t.Cleanup(upstream.Close)
	g := serve(t, "--upstream", upstream.URL, "--stall-timeout", "10m", "--policy", write(t, "p.yaml",
		"version: 1\nrules: [{name: a, match: POST /login, limit: 1/day}]\n"))
	if resp, body := do(t, request(t, "POST", g.url+"/login", "x")); resp.StatusCode == 429 {
		t.Fatal(body)
	}
	for name, head := range map[string]string{
		"asks before it sends":       "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
		"asks, and sends chunks":     "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n",
		"stops":                      "Content-Length: 200000\r\n\r\nx",
		"stops in a chunk":           "Transfer-Encoding: chunked\r\n\r\n5\r\nx",
		"has a large body, and asks": "Expect: 100-continue\r\nContent-Length: 20000000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The connection ends, too: what is left of the body is no next request.
			got := readAll(t, dial(t, g, "POST /login HTTP/1.1\r\nHost: a\r\n"+head))
			if !strings.HasPrefix(got, "HTTP/1.1 429 ") || !strings.Contains(got, "\r\nConnection: close\r\n") {
				t.Errorf("%q", got)
			}
		})
	}
	// A body that comes in time leaves the connection open.
	c := dial(t, g, "POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	answers := bufio.NewReader(c)
	for range 2 {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 429 || resp.Close {
			t.Errorf("%s, close %v", resp.Status, resp.Close)
		}
		_, _ = io.WriteString(c, "POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello")
	}
	// Who asks and may send is told to.
	c = dial(t, g, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answers = bufio.NewReader(c)
	resp, err := http.ReadResponse(answers, nil)
	if err != nil || resp.StatusCode != 100 {
		t.Fatal(resp, err)
	}
	_, _ = io.WriteString(c, "hello")
	for resp.StatusCode == 100 { // the gateway says it, and passes on that the upstream does
		if resp, err = http.ReadResponse(answers, nil); err != nil {
			t.Fatal(err)
		}
	}
	if resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
}
