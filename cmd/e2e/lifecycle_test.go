package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// When the gateway and --check drain, requests under way are completed, and connections that were open before still
// serve requests.
func TestDrain(t *testing.T) {
	t.Parallel()
	const inFlight = 20
	var arrived, clients sync.WaitGroup
	arrived.Add(inFlight)
	answer := make(chan struct{})
	g := before(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived.Done()
			<-answer
			fmt.Fprint(w, "done")
		}
	}), "--check", "127.0.0.1:0", "--drain-timeout", patience.String())
	for range inFlight {
		clients.Go(func() {
			if status, body := get(t, g.URL+"/wait"); status != 200 || body != "done" {
				t.Errorf("%d %q", status, body)
			}
		})
	}
	var early []net.Conn
	for _, addr := range []string{g.Addr, g.Check} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		early = append(early, c)
		get(t, "http://"+addr+"/healthz") // connections are accepted in order, so c is accepted now
	}
	arrived.Wait()
	g.Signal(syscall.SIGINT)
	g.AwaitStatus(g.Admin+"/readyz", http.StatusServiceUnavailable)
	if status, _ := get(t, g.Admin+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d while draining", status)
	}
	close(answer)
	clients.Wait()
	for _, c := range early {
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		readAnswer(t, c).Body.Close()
	}
	if code := g.Wait(); code != 0 || strings.Contains(g.Logged(), "requests were cut off") {
		t.Errorf("exit code %d, or requests were cut off", code)
	}
}

// A request to the admin address that has started before the shutdown is answered, and event streams end.
func TestDrainAdmin(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--policy", "example", "--drain-timeout", "80s")
	stream, err := http.Get(g.Admin + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	addr := strings.TrimPrefix(g.Admin, "http://")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const body = `{"method": "GET", "url": "/"}`
	fmt.Fprintf(c, "POST /v1/explain HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body[:5])
	// Connections are accepted in order, and this client opens a new one, so c is accepted now.
	later := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := later.Get(g.Admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	g.Signal(syscall.SIGTERM)
	g.Await("the gateway drains", func(r record) bool { return r.Msg == "draining" })
	testkit.Await(t, "the admin address accepts no new connections", func() bool { return !testkit.Listens(addr) })
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	fmt.Fprint(c, body[5:])
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		t.Errorf("a request under way gets %q, %v", line, err)
	}
	if code := g.Wait(); code != 0 || strings.Contains(g.Logged(), "requests were cut off") {
		t.Errorf("exit code %d, or requests were cut off", code)
	}
}
