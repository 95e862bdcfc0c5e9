package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const haproxyPolicy = `
version: 1
rules:
  - {name: per-ip, match: /things, key: [client_ip], limit: 3/day, algorithm: fixed_window}
  - {name: login, match: POST /login, key: [body:user], limit: 1/day, algorithm: fixed_window}
  - {name: once, match: /once, key: [client_ip], limit: 1/day, algorithm: fixed_window}
  - {name: queue, match: /queue, key: [client_ip], algorithm: leaky_bucket, limit: 5/second burst 4}
  - {name: hours, match: /hours, key: [client_ip], algorithm: leaky_bucket, limit: 1/hour burst 4}
`

// edge is HAProxy with the files of deploy/haproxy, before a backend, and Sluice beside it.
type edge struct {
	*testing.T
	url, addr string
	agent     *gateway
	at        string // where the agent listens
	passed    atomic.Int64
	fail      atomic.Int64 // how many requests the backend leaves unanswered
}

// arrived is what the backend says that it was asked.
type arrived struct {
	Method, URI, Body string
	Header            http.Header
}

func (e *edge) backend(w http.ResponseWriter, r *http.Request) {
	if e.fail.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
	e.passed.Add(1)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		e.Error(err)
	}
	if err := json.NewEncoder(w).Encode(arrived{r.Method, r.RequestURI, string(body), r.Header}); err != nil {
		e.Error(err)
	}
}

// edit is a text of the configuration that stands there once, and what to put in its place.
type edit struct{ from, to string }

// patiently makes no verdict depend on how busy the machine is.
var patiently = []edit{{"timeout processing 500ms", "timeout processing 60s"}, {"timeout hello 200ms", "timeout hello 60s"}, {"timeout connect 200ms", "timeout connect 60s"}}

var failClosed = edit{"#closed ", ""}

// behindHAProxy starts all of it.
func behindHAProxy(t *testing.T, policy string, edits []edit, args ...string) *edge {
	t.Helper()
	e := &edge{T: t, addr: testkit.Addr(t)}
	e.url = "http://" + e.addr
	upstream := httptest.NewUnstartedServer(http.HandlerFunc(e.backend))
	upstream.Config.ErrorLog = nil
	upstream.Start()
	t.Cleanup(upstream.Close)
	e.at = testkit.Addr(t)
	e.startAgent(policy, args...)
	dir := t.TempDir()
	edits = append([]edit{
		{"bind 127.0.0.1:8000", "bind " + e.addr},
		{"server api 127.0.0.1:3000", "server api " + upstream.Listener.Addr().String()},
		{"server sluice 127.0.0.1:9000", "server sluice " + e.at},
		{"/etc/haproxy/spoe-sluice.conf", filepath.Join(dir, "spoe-sluice.conf")},
	}, edits...)
	deploy(t, dir, edits)
	launch(t, e.addr, "haproxy", "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
	return e
}

// deploy writes the files of deploy/haproxy, edited.
func deploy(t *testing.T, dir string, edits []edit) {
	t.Helper()
	found := make([]int, len(edits))
	for _, name := range []string{"haproxy.cfg", "spoe-sluice.conf"} {
		data, err := os.ReadFile(filepath.Join("..", "deploy", "haproxy", name))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		for i, x := range edits {
			found[i] += strings.Count(text, x.from)
			text = strings.Replace(text, x.from, x.to, 1)
		}
		overwrite(t, filepath.Join(dir, name), text)
	}
	for i, n := range found {
		if n != 1 {
			t.Fatalf("%q stands in deploy/haproxy %d times", edits[i].from, n)
		}
	}
}

func (e *edge) startAgent(policy string, args ...string) {
	e.Helper()
	e.agent = begin(e.T, append([]string{"--policy", write(e.T, "policy.yaml", policy), "--spoe", e.at}, args...)...)
}

// ask sends a request from an address.
func (e *edge) ask(from string, r *http.Request) (*http.Response, string) {
	e.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		e.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.Fatal(err)
	}
	return resp, string(body)
}

func (e *edge) asks(want int, from, method, path, body string, header ...string) (*http.Response, string) {
	e.Helper()
	resp, text := e.ask(from, request(e.T, method, e.url+path, body, header...))
	if resp.StatusCode != want {
		e.Errorf("%s %s from %s: %s %v %q, want %d", method, path, from, resp.Status, resp.Header, text, want)
	}
	return resp, text
}

var form = []string{"Content-Type", "application/x-www-form-urlencoded"}

// HAProxy sends a request again that the backend has not answered, and a group may be asked twice, as where both a
// frontend and a backend do so.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	const ask, server = "    http-request send-spoe-group sluice check\n", "    server api "
	e := behindHAProxy(t, haproxyPolicy, append([]edit{
		{ask, ask + ask}, {server, "    retries 3\n    retry-on all-retryable-errors\n" + server},
	}, patiently...))
	for name, test := range map[string]func(*edge){
		"answers": testHAProxyAnswers, "forged": testHAProxyForged, "paths": testHAProxyPaths, "bodies": testHAProxyBodies,
		"intact": testHAProxyIntact, "too large": testHAProxyTooLarge, "kept alive": testHAProxyKeptAlive,
	} {
		t.Run(name, func(t *testing.T) {
			was := e.T
			e.T = t
			defer func() { e.T = was }()
			test(e)
		})
	}
}

// What passes is charged once, however often it was sent, and told; a refusal is that of the gateway.
func testHAProxyAnswers(e *edge) {
	const client = "127.0.1.1"
	for left := 2; left >= 0; left-- {
		e.fail.Store(2)
		resp, body := e.asks(200, client, "GET", "/things?x=1", "")
		var a arrived
		if err := json.Unmarshal([]byte(body), &a); err != nil || a.URI != "/things?x=1" || e.fail.Load() >= 0 {
			e.Errorf("after two failures the backend got %q", body)
		}
		h := resp.Header
		if h.Get("RateLimit-Policy") != `"per-ip";q=3;w=86400` || h.Get("X-RateLimit-Remaining") != strconv.Itoa(left) ||
			!strings.HasPrefix(h.Get("RateLimit"), fmt.Sprintf(`"per-ip";r=%d;t=`, left)) || h.Get("Retry-After") != "" {
			e.Errorf("fields of what passes: %v", h)
		}
	}
	before := e.passed.Load()
	resp, body := e.asks(429, client, "GET", "/things", "")
	if resp.Header.Get("Retry-After") == "" || resp.Header.Get("Content-Type") != "application/problem+json" ||
		resp.Header.Get("Cache-Control") != "no-store" || !strings.Contains(body, `"violated-policies":["per-ip"]`) {
		e.Errorf("a refusal: %v %s", resp.Header, body)
	}
	resp, body = e.asks(429, client, "POST", "/things", strings.Repeat("x", 5000), "Accept", "text/plain")
	if resp.Header.Get("Content-Type") != "text/plain" || !strings.HasPrefix(body, "Limit per-ip:") {
		e.Errorf("a refusal as text: %v %q", resp.Header, body)
	}
	e.asks(429, client, "HEAD", "/things", "")
	if passed := e.passed.Load() - before; passed != 0 {
		e.Errorf("%d refused requests reached the backend", passed)
	}
	if resp, _ = e.asks(200, client, "GET", "/else", ""); resp.Header.Get("RateLimit") != "" {
		e.Errorf("a request that nothing counts: %v", resp.Header)
	}
}

// A request of a leaky bucket is held until its turn, or refused, without a place, if HAProxy would not wait so long.
func testHAProxyQueue(e *edge) {
	start := time.Now()
	for range 4 { // five a second: the first at once, and 200 ms between two
		e.asks(200, "127.0.4.1", "GET", "/queue", "")
	}
	if took := time.Since(start); took < 600*time.Millisecond {
		e.Errorf("four turns have come within %v", took)
	}
	e.asks(200, "127.0.4.1", "GET", "/hours", "")
	for range 5 { // more than there are places
		resp, _ := e.asks(429, "127.0.4.1", "GET", "/hours", "")
		if after, _ := strconv.Atoi(resp.Header.Get("Retry-After")); after < 3000 || after > 3600 {
			e.Errorf("%v", resp.Header)
		}
	}
}

// Nothing that a client says makes it another, or its request one that was asked before.
func testHAProxyForged(e *edge) {
	const client = "127.0.1.2"
	e.asks(200, client, "GET", "/once", "")
	for _, field := range []string{
		"X-Forwarded-For", "X-Real-IP", "Forwarded", "True-Client-IP", "X-Original-URI", "X-Original-Method", "X-Forwarded-Uri", "X-Forwarded-Method", "X-Unique-ID", "X-Request-ID",
		"X-HTTP-Method-Override", "Src", "Allowed", "txn.sluice.allowed",
	} {
		e.asks(429, client, "GET", "/once", "", field, "127.0.9.9")
	}
	e.asks(200, "127.0.9.9", "GET", "/once", "")
}

func testHAProxyPaths(e *edge) {
	const client = "127.0.1.3"
	e.asks(200, client, "GET", "/once", "")
	for _, path := range []string{"/once?x", "//once", "/./once", "/x/../once", "/%6fnce", "/once/", "/%2fonce", "/once;x"} {
		if got := e.raw(client, "GET "+path+" HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n"); got != 429 {
			e.Errorf("%s: %d", path, got)
		}
	}
	if got := e.raw(client, "GET "+e.url+"/once HTTP/1.1\r\nHost: "+e.addr+"\r\nConnection: close\r\n\r\n"); got != 429 {
		e.Errorf("in absolute form: %d", got)
	}
}

// raw returns the status of the answer to what is sent.
func (e *edge) raw(from, text string) int {
	e.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(e.Context(), "tcp", e.addr)
	if err != nil {
		e.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		e.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		e.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func testHAProxyBodies(e *edge) {
	const client = "127.0.1.4"
	e.asks(200, client, "POST", "/login", "user=alice&password=x", form...)
	e.asks(429, "127.0.1.5", "POST", "/login", "password=y&user=ALICE", form...)
	e.asks(429, client, "POST", "/login", `{"user":"alice"}`, "Content-Type", "application/json")
	e.asks(200, client, "POST", "/login", `{"user":"bob"}`, "Content-Type", "application/json")
	// What HAProxy cannot show whole is refused, wherever the name stands in it.
	e.asks(400, client, "POST", "/login", "user=carol&pad="+strings.Repeat("x", 9000), form...)
	r := request(e.T, "POST", e.url+"/login", "", form...)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("user=carol")), -1
	if resp, _ := e.ask(client, r); resp.StatusCode != 400 {
		e.Errorf("chunked: %s", resp.Status)
	}
	if status := e.overHTTP2(client, "user=carol"); status != 400 {
		e.Errorf("over HTTP/2, without a length: %d", status)
	}
	e.asks(200, client, "POST", "/login", "user=carol", form...)
}

// overHTTP2 logs in with a body of which the length is not announced.
func (e *edge) overHTTP2(from, body string) int {
	e.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	r := request(e.T, "POST", e.url+"/login", "", form...)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
	resp, err := transport.RoundTrip(r)
	if err != nil {
		e.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 {
		e.Errorf("this was %s", resp.Proto)
	}
	return resp.StatusCode
}

// What passes is what was sent.
func testHAProxyIntact(e *edge) {
	for _, size := range []int{0, 1, 8191, 8192, 8193, 20_000, 1_000_000} {
		for _, chunked := range []bool{false, true} {
			sent := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
			r := request(e.T, "POST", e.url+"/upload?q=%2f", sent, "X-Mine", "a", "X-Mine", "b")
			if chunked {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(sent)), -1
			}
			resp, body := e.ask("127.0.1.6", r)
			var a arrived
			if err := json.Unmarshal([]byte(body), &a); err != nil || resp.StatusCode != 200 || a.Body != sent || a.URI != "/upload?q=%2f" || fmt.Sprint(a.Header["X-Mine"]) != "[a b]" {
				e.Errorf("%d bytes, chunked %v: %s, and %d bytes arrive", size, chunked, resp.Status, len(a.Body))
			}
		}
	}
}

// What is too large to be asked about does not pass for that.
func testHAProxyTooLarge(e *edge) {
	const client = "127.0.1.7"
	e.asks(200, client, "GET", "/once", "")
	before := e.passed.Load()
	seen := map[int]bool{}
	for size := 1000; size <= 12_000; size += 500 { // the host is sent twice: alone, and with the fields
		r := request(e.T, "POST", e.url+"/once", strings.Repeat("b", 9000), "X-Pad", strings.Repeat("x", 3000))
		r.Host = strings.Repeat("a", size)
		resp, _ := e.ask(client, r)
		seen[resp.StatusCode] = true
	}
	if e.passed.Load() != before || !seen[431] || !seen[429] {
		e.Errorf("statuses: %v, %d passed", seen, e.passed.Load()-before)
	}
}

// Requests of one connection are told apart.
func testHAProxyKeptAlive(e *edge) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 9)}}
	conn, err := dialer.DialContext(e.Context(), "tcp", e.addr)
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for _, c := range []struct {
		path string
		want int
	}{{"/once", 200}, {"/once", 429}, {"/else", 200}, {"/once", 429}} {
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: api\r\n\r\n", c.path); err != nil {
			e.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			e.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.want || (c.path == "/else") != (resp.Header.Get("RateLimit") == "") {
			e.Errorf("%s: %s %v, want %d", c.path, resp.Status, resp.Header, c.want)
		}
	}
}

// Without an agent the configuration decides, and limits hold again when it is back.
func TestHAProxyAgentAway(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	for name, c := range map[string]struct {
		edits []edit
		want  int
	}{"open": {nil, 200}, "closed": {[]edit{failClosed}, 503}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := behindHAProxy(t, haproxyPolicy, c.edits)
			limited := func(from string) {
				redistest.Eventually(t, "limits hold", func() bool {
					resp, _ := e.ask(from, request(t, "GET", e.url+"/once", ""))
					return resp.StatusCode == 429
				})
			}
			away := func(how string) {
				t.Helper()
				resp, _ := e.asks(c.want, "127.0.2.1", "GET", "/once", "")
				if resp.Header.Get("RateLimit") != "" || c.want == 503 && resp.Header.Get("Retry-After") != "1" {
					t.Errorf("%s: %v", how, resp.Header)
				}
			}
			limited("127.0.2.1")
			e.agent.Signal(syscall.SIGSTOP)
			redistest.Eventually(t, "it has stopped", e.agent.Frozen)
			away("frozen")
			e.agent.Signal(syscall.SIGCONT)
			limited("127.0.2.1")
			e.agent.Stop()
			away("stopped")
			e.startAgent(haproxyPolicy)
			limited("127.0.2.1")
		})
	}
}

// Where they are not on one machine, both show certificates. A rule that reads a body which the configuration
// does not send refuses, open or not.
func TestHAProxyTLS(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	cert, key := ours.make("both", nil)
	var both []byte
	for _, path := range []string{cert, key} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, data...)
	}
	e := behindHAProxy(t, haproxyPolicy, append([]edit{
		{" check inter 1s", " check inter 1s ssl verify required ca-file " + ours.ca + " crt " + write(t, "haproxy.pem", string(both))},
		{" body=req.body,bytes(0,8192)", ""}, {"option http-buffer-request", ""}, {"wait=int(400)", "wait=int(50000)"},
	}, patiently...), "--door-tls-cert", cert, "--door-tls-key", key, "--door-tls-client-ca", ours.ca)
	e.asks(200, "127.0.5.1", "GET", "/once", "")
	e.asks(429, "127.0.5.1", "GET", "/once", "")
	if resp, _ := e.asks(503, "127.0.5.1", "POST", "/login", "user=alice", form...); resp.Header.Get("Retry-After") == "" {
		t.Errorf("%v", resp.Header)
	}
	e.agent.Await("it says why", func(r record) bool { return strings.Contains(r.Msg, "add body=req.body to the arguments") })
	testHAProxyQueue(e)
}
