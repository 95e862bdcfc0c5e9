package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"github.com/sluicehq/sluice/internal/testkit"
)

// from opens a connection from an address of this machine.
func from(t *testing.T, g *gateway, address, send string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c, err := d.DialContext(t.Context(), "tcp", g.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_, _ = io.WriteString(c, send) // the connection may already be closed, which the test notices later
	return c
}

// served reports whether a request on c gets a response with status 200.
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
	testkit.Await(t, "a new connection is served after clients have left", func() bool {
		c := from(t, g, "127.0.0.1", "")
		defer c.Close()
		return served(t, c)
	})
}

// The number of connections is limited for each address and in total. A connection that closes makes room for another.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const one, all = 3, 6
	g := serve(t, "--max-connections-per-address", fmt.Sprint(one), "--max-connections", fmt.Sprint(all), "--upstream", "sample",
		"--policy", testkit.File(t, "p.yaml", "version: 1\nrules: [{name: a, limit: 999/second}]\n"))
	var open []net.Conn
	try := func(address string) {
		if c := from(t, g, address, ""); served(t, c) {
			open = append(open, c)
		}
	}
	for range all {
		try("127.0.0.1")
	}
	if len(open) != one {
		t.Errorf("%d connections of one address are open, want %d", len(open), one)
	}
	for i := range all {
		try(fmt.Sprint("127.0.1.", i+1))
	}
	if got := g.Metric("sluice_connections"); len(open) != all || got != all {
		t.Errorf("%d connections are open, and /metrics has %v, want %d", len(open), got, all)
	}
	for i, c := range open {
		if !served(t, c) {
			t.Errorf("connection %d does not answer", i)
		}
	}
	open[0].Close()
	awaitRoom(t, g)
}

// Clients that use up the file descriptors for connections do not block the admin address.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	upstream := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-r.Context().Done()
		}
	})
	few := []string{"sh", "-c", `ulimit -n 200 && exec "$@"`, "sh"}
	g := testkit.StartWith(t, func(*exec.Cmd) {}, few, "--upstream", upstreamOf(t, upstream), "--policy", testkit.File(t, "p.yaml", wide))
	g.AwaitStatus(g.Admin+"/readyz", http.StatusOK)
	held := make([]net.Conn, 300)
	for i := range held {
		send := "GET / HTTP/1.1\r\nHost:" // the head is not complete
		if i%2 == 0 {
			send = "GET /hang HTTP/1.1\r\nHost: a\r\n\r\n" // also holds a connection to the upstream
		}
		held[i] = from(t, g, fmt.Sprintf("127.0.0.%d", 1+i%100), send)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		for range 5 {
			resp, err := client.Get(g.Admin + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Errorf("%s: %s", path, resp.Status)
			}
		}
	}
	if n := g.Metric("process_open_fds"); n > 190 {
		t.Errorf("%v files are open", n)
	}
	for _, c := range held {
		c.Close()
	}
	awaitRoom(t, g)
	log := g.Logged()
	if strings.Contains(log, "too many open files") || strings.Contains(log, "upstream does not respond") || !strings.Contains(log, "too many connections") {
		t.Error("the log does not report the cause")
	}
}

// streaming is an upstream with event streams and WebSockets. The stream /beats sends events all the time, the others
// only one. A WebSocket sends nothing before it receives "end".
func streaming(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/ws") {
		websocket.Handler(func(c *websocket.Conn) {
			for got := ""; websocket.Message.Receive(c, &got) == nil; {
				if got == "end" {
					_ = websocket.Message.Send(c, got)
				}
			}
		}).ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for {
		fmt.Fprint(w, "data: x\n\n")
		_ = http.NewResponseController(w).Flush()
		beat := make(<-chan time.Time)
		if r.URL.Path == "/beats" {
			beat = time.After(20 * time.Millisecond)
		}
		select {
		case <-r.Context().Done():
			return
		case <-beat:
		}
	}
}

// Streams without traffic end. Others continue: a stream with events, and a WebSocket on which only the client sends
// messages.
func TestSilentStreams(t *testing.T) {
	t.Parallel()
	g := before(t, http.HandlerFunc(streaming), "--idle-timeout", "2s", "--max-streams", "4")
	var beats atomic.Int64
	go func() {
		for lines := bufio.NewScanner(dial(t, g, "GET /beats HTTP/1.1\r\nHost: a\r\n\r\n")); lines.Scan(); {
			beats.Add(1)
		}
	}()
	testkit.Await(t, "the stream sends events", func() bool { return beats.Load() > 20 })
	talks, err := websocket.Dial("ws://"+g.Addr+"/ws", "", g.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer talks.Close()
	over, result := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for going := true; going && err == nil; {
			select {
			case <-over:
				going = false
			case <-time.After(20 * time.Millisecond):
				err = websocket.Message.Send(talks, "x")
			}
		}
		result <- err
	}()
	events := bufio.NewReader(dial(t, g, "GET /silent HTTP/1.1\r\nHost: a\r\n\r\n"))
	silent := bufio.NewReader(dial(t, g, "GET /ws HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
	for want, r := range map[string]*bufio.Reader{"HTTP/1.1 200 ": events, "HTTP/1.1 101 ": silent} {
		if line, err := r.ReadString('\n'); !strings.HasPrefix(line, want) {
			t.Fatalf("%q, %v, want %s", line, err, want)
		}
	}
	if status, _ := get(t, g.URL+"/silent"); status != 503 {
		t.Errorf("the fifth stream: %d", status)
	}
	if got, err := io.ReadAll(events); !strings.Contains(string(got), "data: x") || strings.HasSuffix(string(got), "0\r\n\r\n") {
		t.Errorf("silent events: %q, %v", got, err)
	}
	if got, err := io.ReadAll(silent); !strings.Contains(string(got), "Upgrade: websocket") {
		t.Errorf("a silent WebSocket: %q, %v", got, err)
	}
	// By now, the other streams have lasted longer than --idle-timeout.
	close(over)
	got := ""
	if err := <-result; err != nil {
		t.Error(err)
	} else if err := websocket.Message.Send(talks, "end"); err != nil {
		t.Error(err)
	} else if err := websocket.Message.Receive(talks, &got); got != "end" {
		t.Errorf("%q, %v", got, err)
	}
	before := beats.Load()
	testkit.Await(t, "the stream still sends events", func() bool { return beats.Load() > before })
	if room, _ := http.Get(g.URL + "/silent"); room == nil || room.StatusCode != 200 {
		t.Errorf("streams that have ended make no room: %v", room)
	} else {
		room.Body.Close()
	}
}
