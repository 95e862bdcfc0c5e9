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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"golang.org/x/net/websocket"
)

const wide = `
version: 1
trusted_proxies: [127.0.0.0/8]
rules:
  - name: wide
    key: [client_ip]
    limit: 100000/day
`

// before starts a gateway with a wide policy before an upstream.
func before(t *testing.T, h http.HandlerFunc, args ...string) *gateway {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	return serve(t, append([]string{"--policy", write(t, "policy.yaml", wide), "--upstream", upstream.URL}, args...)...)
}

func request(t *testing.T, method, url, body string, header ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func do(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		fmt.Fprintf(w, "%s%q%q%q%q%q", r.Host, h["X-Forwarded-For"], h["X-Forwarded-Host"], h["X-Forwarded-Proto"], h["Forwarded"], h["X-Hop"])
	})
	for _, test := range []struct {
		name   string
		header []string
		want   string
	}{
		{"nothing said", nil,
			`["127.0.0.1"]["api.test"]["http"][][]`},
		{"one hop", []string{"X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.test"},
			`["192.0.2.1, 127.0.0.1"]["shop.test"]["https"][][]`},
		{"forged before the client", []string{"X-Forwarded-For", "198.51.100.7, 192.0.2.1, 127.0.0.9"},
			`["192.0.2.1, 127.0.0.1"]["api.test"]["http"][][]`},
		{"garbage", []string{"X-Forwarded-For", "192.0.2.1, nonsense"},
			`["127.0.0.1"]["api.test"]["http"][][]`},
		{"two protocols", []string{"X-Forwarded-Proto", "https", "X-Forwarded-Proto", "http"},
			`["127.0.0.1"]["api.test"]["http"][][]`},
		{"another standard", []string{"Forwarded", "for=192.0.2.1"},
			`["127.0.0.1"]["api.test"]["http"][][]`},
		{"hop by hop", []string{"Connection", "X-Hop, X-Forwarded-For", "X-Hop", "1", "X-Forwarded-For", "192.0.2.1"},
			`["192.0.2.1, 127.0.0.1"]["api.test"]["http"][][]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, "GET", g.url, "", test.header...)
			r.Host = "api.test"
			if _, body := do(t, r); body != "api.test"+test.want {
				t.Errorf("the upstream sees %s, want %s", body, test.want)
			}
		})
	}
}

// Nobody is trusted: what is said is dropped, and not passed on as if it were true.
func TestForwardedHeadersOfStrangers(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-Proto"])
	}))
	defer upstream.Close()
	g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "p.yaml", "version: 1\nrules: [{name: a, limit: 9/second}]\n"))
	r := request(t, "GET", g.url, "", "X-Forwarded-For", "192.0.2.1", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "shop.test")
	if _, body := do(t, r); body != "[127.0.0.1] ["+g.addr+"] [http]" {
		t.Errorf("the upstream sees %s", body)
	}
}

// The upstream has limits of its own: a client must not be told two things.
func TestOurFieldsWin(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", `"upstream";r=1;t=1`)
		w.Header().Set("X-RateLimit-Limit", "1")
		w.Header().Set("X-Own", "kept")
		if r.URL.Path == "/early" {
			w.WriteHeader(http.StatusEarlyHints) // after which the header is emptied
		}
	})
	for _, path := range []string{"/", "/early"} {
		resp, _ := do(t, request(t, "GET", g.url+path, ""))
		h := resp.Header
		if got := h["Ratelimit"]; len(got) != 1 || !strings.HasPrefix(got[0], `"wide";r=`) {
			t.Errorf("%s: RateLimit: %q", path, got)
		}
		if got := h["X-Ratelimit-Limit"]; !slices.Equal(got, []string{"100000"}) {
			t.Errorf("%s: X-RateLimit-Limit: %q", path, got)
		}
		if h.Get("X-Own") != "kept" || h.Get("RateLimit-Policy") == "" {
			t.Errorf("%s: fields are missing: %v", path, h)
		}
	}
}

func TestInformationalResponses(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	r := request(t, "POST", g.url, "hello", "Expect", "100-continue")
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
	if resp.Header.Get("RateLimit") == "" {
		t.Errorf("the fields are lost: %v", resp.Header)
	}
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", strconv.Itoa(len(body))+r.Trailer.Get("X-Asked"))
	})
	r := request(t, "POST", g.url, "")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("four")), -1
	r.Trailer = http.Header{"X-Asked": {"!"}}
	resp, body := do(t, r)
	if body != "four" || resp.Trailer.Get("X-Sum") != "4!" {
		t.Errorf("%q with the trailers %v", body, resp.Trailer)
	}
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	g := before(t, websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }).ServeHTTP)
	c, err := websocket.Dial("ws://"+g.addr+"/echo", "", g.url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range 3 {
		sent := fmt.Sprint("message ", i)
		if err := websocket.Message.Send(c, sent); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := websocket.Message.Receive(c, &got); err != nil || got != sent {
			t.Fatalf("%q, %v, want %q", got, err, sent)
		}
	}
}

// An event is with the client before the next one is made.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range next {
			fmt.Fprintf(w, "data: %s\n\n", event)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
	})
	go func() { next <- "0" }()
	resp, err := http.Get(g.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprint("data: ", i) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
		lines.Scan()
		if i < 2 {
			next <- fmt.Sprint(i + 1)
		}
	}
	close(next)
}

func TestUpstreamAway(t *testing.T) {
	t.Parallel()
	addr := testkit.Addr(t)
	g := serve(t, "--policy", write(t, "policy.yaml", wide), "--upstream", "http://"+addr)
	for range 3 {
		resp, body := do(t, request(t, "GET", g.url, ""))
		if resp.StatusCode != 502 || resp.Header.Get("Content-Type") != "application/problem+json" || !strings.Contains(body, `"status":502`) {
			t.Errorf("%s %v %s", resp.Status, resp.Header, body)
		}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here") })}
	defer back.Close()
	go func() { _ = back.Serve(l) }()
	if status, body := get(t, g.url); status != 200 || body != "here" {
		t.Errorf("%d %s", status, body)
	}
	g.await("the upstream is back", func(r record) bool { return r.Msg == "upstream answers again" })
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := strings.Count(g.raw.String(), "upstream does not answer"); n != 1 {
		t.Errorf("%d lines for one failure:\n%s", n, &g.raw)
	}
}

func TestUpstreamTooSlow(t *testing.T) {
	t.Parallel()
	g := before(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "--upstream-timeout", "50ms")
	if status, body := get(t, g.url); status != 504 || !strings.Contains(body, "did not answer in time") {
		t.Errorf("%d %s", status, body)
	}
}

// A response that breaks off must not look like one that is whole.
func TestUpstreamBreaksOff(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "10")
		}
		_, _ = io.WriteString(w, "half")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	})
	for _, path := range []string{"/length", "/chunks"} {
		resp, err := http.Get(g.url + path)
		if err != nil {
			continue // it broke off before the head was on its way
		}
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%s: %s, %q and no error", path, resp.Status, body)
		}
		resp.Body.Close()
	}
}

// A client that leaves takes its request with it.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	arrived, left := make(chan struct{}), make(chan struct{})
	g := before(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-r.Context().Done():
			close(left)
		case <-t.Context().Done():
		}
	})
	c := dial(t, g, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	c.Close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the upstream works on for nobody")
	}
}

// A leaky bucket holds requests back until their turn, and refuses those that find the
// queue full.
func TestQueue(t *testing.T) {
	t.Parallel()
	const turn = 200 * time.Millisecond
	var mu sync.Mutex
	var passed []time.Time
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		passed = append(passed, time.Now())
	}))
	defer upstream.Close()
	g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "p.yaml",
		"version: 1\nrules: [{name: q, limit: 5/second burst 3, algorithm: leaky_bucket}]\n"))
	start := time.Now()
	var all sync.WaitGroup
	var refused atomic.Int32
	for range 20 {
		all.Go(func() {
			resp, err := http.Get(g.url)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(passed) < 3 || len(passed)+int(refused.Load()) != 20 {
		t.Errorf("of 20 requests %d have passed and %d were refused", len(passed), refused.Load())
	}
	for i, at := range passed {
		if after := at.Sub(start); after < time.Duration(i)*turn {
			t.Errorf("request %d has passed after %v, and its turn is after %v", i, after, time.Duration(i)*turn)
		}
	}
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		// All of it first: a server drops what it has not read when it begins to answer.
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}, "--max-body", "1KiB", "--max-header", "8KiB")
	full := strings.Repeat("x", 1024)
	for _, test := range []struct {
		name    string
		body    string
		chunked bool
		header  string
		want    int
	}{
		{"body that fits", full, false, "", 200},
		{"body that fits, in chunks", full, true, "", 200},
		{"body too large", full + "x", false, "", 413},
		{"body too large, in chunks", full + "x", true, "", 413},
		{"header that fits", "", false, strings.Repeat("h", 4<<10), 200},
		{"header too large", "", false, strings.Repeat("h", 16<<10), 431},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t, "POST", g.url, test.body, "X-Large", test.header)
			if test.chunked {
				r.ContentLength = -1
			}
			if resp, body := do(t, r); resp.StatusCode != test.want || test.want == 200 && body != test.body {
				t.Errorf("%s: %.200s, want %d", resp.Status, body, test.want)
			}
		})
	}
}

// readAll reads until the other side closes.
func readAll(t *testing.T, c net.Conn) string {
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

func dial(t *testing.T, g *gateway, send string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	return c
}

// Clients that stop are let go, and do not hold the upstream meanwhile.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("x"), 64<<10)
	start := func(t *testing.T, stall string) (g *gateway, ended chan error) {
		t.Helper()
		ended = make(chan error, 1)
		return before(t, func(w http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			for r.URL.Path == "/endless" && err == nil {
				_, err = w.Write(large)
			}
			ended <- err
		}, "--header-timeout", stall, "--stall-timeout", stall), ended
	}
	t.Run("head", func(t *testing.T) {
		g, _ := start(t, "300ms")
		c := dial(t, g, "GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ")
		if got := readAll(t, c); got != "" && !strings.Contains(got, " 408 ") {
			t.Errorf("%q", got)
		}
	})
	t.Run("body", func(t *testing.T) {
		g, ended := start(t, "1s")
		for _, length := range []string{"10", "100000"} { // the upstream does not even hear of the small one
			c := dial(t, g, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: "+length+"\r\n\r\nhalf")
			if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 408 ") {
				t.Errorf("%s: %q", length, got)
			}
		}
		if err := <-ended; err == nil {
			t.Error("the upstream has got half a body for a whole one")
		}
	})
	t.Run("slow but steady", func(t *testing.T) {
		t.Parallel()
		g, ended := start(t, "4s")
		c := dial(t, g, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 8\r\n\r\n")
		for range 8 { // longer in all than the timeout, and each step shorter
			time.Sleep(600 * time.Millisecond)
			if _, err := io.WriteString(c, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if got := readAll(t, c); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
			t.Errorf("%q", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("reading", func(t *testing.T) {
		g, ended := start(t, "1s")
		dial(t, g, "GET /endless HTTP/1.1\r\nHost: a\r\n\r\n")
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the upstream has come to an end")
			}
		case <-time.After(patience):
			t.Error("a client that does not read holds the upstream")
		}
	})
}

// A response that takes longer than a body may stall is not cut.
func TestStreamsAreNotCut(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		time.Sleep(3 * time.Second)
		_, _ = w.Write(body)
	}, "--stall-timeout", "2s")
	if resp, body := do(t, request(t, "POST", g.url, "still here")); resp.StatusCode != 200 || body != "still here" {
		t.Errorf("%s %q", resp.Status, body)
	}
}

func TestGarbage(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	const line, host = "GET / HTTP/1.1\r\n", "Host: a\r\n"
	many := strings.Repeat("192.0.2.1, ", 1000) + "192.0.2.1"
	for name, test := range map[string]struct {
		send string
		want string // statuses that are right
	}{
		"no HTTP":                   {"\x16\x03\x01\x00\xa5\x01\x00\r\n\r\n", "400"},
		"NUL in the target":         {"GET /\x00 HTTP/1.1\r\n" + host + "\r\n", "400"},
		"high bytes in the target":  {"GET /\xff\xfe?\xff=\xff HTTP/1.1\r\n" + host + "\r\n", "200 400"},
		"bad escape":                {"GET /%zz HTTP/1.1\r\n" + host + "\r\n", "400"},
		"escaped NUL":               {"GET /a%00b HTTP/1.1\r\n" + host + "\r\n", "200"},
		"high bytes in a header":    {line + host + "X-A: \xff\xfe\r\n\r\n", "200"},
		"control in a header":       {line + host + "X-A: a\x01b\r\n\r\n", "400"},
		"header without colon":      {line + host + "nonsense\r\n\r\n", "400"},
		"high bytes in the host":    {line + "Host: \xff\xfe\r\n\r\n", "400"},
		"space in the host":         {line + "Host: a b\r\n\r\n", "200 400"},
		"no host":                   {line + "\r\n", "400"},
		"two hosts":                 {line + host + host + "\r\n", "400"},
		"strange host":              {line + "Host: [::1%25eth0]:99999\r\n\r\n", "200 400"},
		"host in punycode":          {line + "Host: xn--a\r\n\r\n", "200 400"},
		"absolute target":           {"GET http://b.test/x HTTP/1.1\r\n" + host + "\r\n", "200"},
		"other scheme":              {"GET ftp://b.test/x HTTP/1.1\r\n" + host + "\r\n", "400"},
		"asterisk":                  {"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", "200"},
		"asterisk with GET":         {"GET * HTTP/1.1\r\n" + host + "\r\n", "400"},
		"target without slash":      {"GET foo HTTP/1.1\r\n" + host + "\r\n", "400"},
		"CONNECT":                   {"CONNECT b.test:443 HTTP/1.1\r\nHost: b.test:443\r\n\r\n", "400"},
		"CONNECT with a path":       {"CONNECT /x HTTP/1.1\r\n" + host + "\r\n", "400"},
		"unknown method":            {"BREW / HTTP/1.1\r\n" + host + "\r\n", "200"},
		"method with bad bytes":     {"G(T / HTTP/1.1\r\n" + host + "\r\n", "400"},
		"negative length":           {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", "400"},
		"two lengths":               {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400"},
		"length and chunks":         {"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "200 400"},
		"unknown transfer encoding": {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", "501"},
		"chunks that are none":      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n", "400"},
		"unknown upgrade":           {line + host + "Connection: Upgrade\r\nUpgrade: nonsense\r\n\r\n", "200"},
		"bad bytes in the upgrade":  {line + host + "Connection: Upgrade\r\nUpgrade: \xff\r\n\r\n", "200"},
		"unknown expectation":       {line + host + "Expect: tea\r\n\r\n", "200 417"},
		"1,000 hops":                {line + host + "X-Forwarded-For: " + many + "\r\n\r\n", "200"},
		"HTTP/2 preface":            {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
		"HTTP/3.7":                  {"GET / HTTP/3.7\r\n" + host + "\r\n", "400 505"},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, g, test.send)
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if !strings.Contains(test.want, strconv.Itoa(resp.StatusCode)) {
				t.Errorf("%s, want %s", resp.Status, test.want)
			}
		})
	}
	if status, _ := get(t, g.url); status != 200 {
		t.Errorf("afterwards: %d", status)
	}
}

// CGI and its heirs take X_API_Key and X.API.Key for X-API-Key, which a rule may have looked at.
func TestUnderscores(t *testing.T) {
	t.Parallel()
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q%q", r.Header["X-Api-Key"], append(r.Header["X_api_key"], r.Header["X.api.key"]...))
	})
	r := request(t, "GET", g.url, "", "X-API-Key", "mine", "X_API_Key", "forged", "X.API.Key", "forged")
	if _, body := do(t, r); body != `["mine"][]` {
		t.Errorf("the upstream sees %s", body)
	}
}

// A small heap is not collected all the time: there is room for garbage as long as the
// gateway serves. Asking for the number makes the garbage that leads to a collection.
func TestGatewayCollectsSeldom(t *testing.T) {
	g := serve(t, "--upstream", "sample")
	const room, collections = 32 << 20, "go_gc_duration_seconds_count"
	for begun := metric(t, g, collections); metric(t, g, collections) < begun+2; {
	}
	if next := metric(t, g, "go_memstats_next_gc_bytes"); next < room {
		t.Errorf("the next collection is at %.0f bytes", next)
	}
}
