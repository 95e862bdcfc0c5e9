package proxy

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
)

// gate starts a gateway in front of an upstream. The function decide takes the position of the limits.
func gate(t *testing.T, upstream, decide http.HandlerFunc, path string) *httptest.Server {
	t.Helper()
	behind := httptest.NewServer(upstream)
	t.Cleanup(behind.Close)
	target, err := url.Parse(behind.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	s := gateTo(t, Upstream{URL: target}, decide, Client{})
	s.Start()
	return s
}

// gateTo returns a gateway to u that has not been started.
func gateTo(t *testing.T, u Upstream, decide http.HandlerFunc, c Client) *httptest.Server {
	t.Helper()
	u.Trusted, u.Log = func() []netip.Prefix { return nil }, slog.New(slog.DiscardHandler)
	pass := Handler(u)
	c.HeaderTimeout, c.StallTimeout = cmp.Or(c.HeaderTimeout, time.Minute), cmp.Or(c.StallTimeout, time.Minute)
	c.MaxHeader, c.Log = 64<<10, u.Log
	s := httptest.NewUnstartedServer(nil)
	s.Config = Server(Clean(u, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		decide(w, r)
		pass.ServeHTTP(w, r)
	})), c)
	t.Cleanup(s.Close)
	return s
}

// describe returns the parts of a request that the client determines, without fields that the gateway and net/http add.
func describe(r *http.Request, uri string) string {
	h := r.Header.Clone()
	for _, name := range []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Connection", "Te", "User-Agent", "Accept-Encoding", "Content-Length",
	} {
		delete(h, name)
	}
	return fmt.Sprintf("%s %s %s %v", r.Method, r.Host, uri, h)
}

// pick returns a text of at most the given number of random pieces.
func pick(random *rand.Rand, of []string, most int) string {
	var b strings.Builder
	for range random.IntN(most + 1) {
		b.WriteString(of[random.IntN(len(of))])
	}
	return b.String()
}

// The limits decide about exactly the request that the upstream gets: the same path, query, host and fields.
func TestUpstreamGetsWhatIsDecided(t *testing.T) {
	t.Parallel()
	var decided, got atomic.Value // of string
	s := gate(t, func(_ http.ResponseWriter, r *http.Request) { got.Store(describe(r, r.RequestURI)) },
		func(_ http.ResponseWriter, r *http.Request) {
			uri := r.URL.EscapedPath()
			if uri == "" {
				uri = "/"
			}
			if r.URL.ForceQuery || r.URL.RawQuery != "" {
				uri += "?" + r.URL.RawQuery
			}
			decided.Store(describe(r, uri))
			got.Store("nothing")
		}, "")
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{"/", "a", ".", "..", "%2e", "%2F", "%5c", `\`, ";", "=", "&", "?", "#", "%25", "%", "%zz", "%00", "%C3%A9", "\xc3\xa9", "\xff", "|", `"`, "<", "^", "+", "*", ":", "@", "//", "[", "{"}
	names := []string{"X-API-Key", "X_API_Key", "Proxy-Connection", "Keep-Alive", "HTTP2-Settings", "X-Original-URL", "X-HTTP-Method-Override", "Upgrade", "Proxy-Authorization", "Accept", "X-Forwarded-Prefix", "Cookie"}
	passed := 0
	for i := range 3000 {
		target := pick(random, []string{"", "", "", "http://h.test", "HTTPS://x:1"}, 1) + "/" + pick(random, pieces, 8)
		head := ""
		for range random.IntN(4) {
			head += names[random.IntN(len(names))] + ": " + pick(random, []string{"a", "websocket", "h2c", " ", ","}, 3) + "\r\n"
		}
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a.test\r\n%s\r\n", target, head)
		decided.Store("")
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatalf("seed %d, %d: %q: %v", seed, i, target, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.Close { // refused by net/http itself
			c.Close()
			if c, err = net.Dial("tcp", s.Listener.Addr().String()); err != nil {
				t.Fatal(err)
			}
			answers.Reset(c)
		}
		if decided.Load() == "" {
			continue
		}
		passed++
		if got.Load() != decided.Load() {
			t.Fatalf("seed %d, %d: %q %q:\n decided about %s\n passed on      %s", seed, i, target, head, decided.Load(), got.Load())
		}
	}
	if passed < 500 {
		t.Errorf("seed %d: only %d requests were passed on", seed, passed)
	}
}

// If an upstream answers before the end of a chunked body, it gets the whole body, or an error if the rest is missing.
func TestAnswersBeforeUploadsEnd(t *testing.T) {
	t.Parallel()
	for _, all := range []bool{true, false} {
		answered := make(chan struct{})
		got := make(chan string, 1)
		s := gate(t, func(w http.ResponseWriter, r *http.Request) {
			c, both, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			body := httputil.NewChunkedReader(both)
			first := make([]byte, 20)
			_, err = io.ReadFull(body, first)
			answer := "HTTP/1.1 200 OK\r\n\r\n" // a body without an end
			if !all {
				answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				t.Error(err)
			}
			close(answered)
			rest, restErr := io.ReadAll(body)
			got <- fmt.Sprintf("%s%s, %v, %v", first, rest, err, restErr)
		}, pass, "")
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send := func(text string) {
			if _, err := io.WriteString(c, text); err != nil {
				t.Error(err)
			}
		}
		send("POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n" + strings.Repeat("a", 20) + "\r\n")
		<-answered
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		answer := bufio.NewReader(c)
		if line, err := answer.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
			t.Errorf("the answer begins with %q, %v", line, err)
		}
		if all {
			for range 10 {
				send("1\r\nb\r\n")
			}
			send("0\r\n\r\n")
		}
		want := strings.Repeat("a", 20) + ", <nil>, unexpected EOF"
		if all {
			want = strings.Repeat("a", 20) + strings.Repeat("b", 10) + ", <nil>, <nil>"
		}
		if text := <-got; text != want {
			t.Errorf("the upstream got %s", text)
		}
	}
}

// If the answer comes before the end of an upload, the rest of the upload is never read as a request.
func TestRestOfUploadIsNoRequest(t *testing.T) {
	t.Parallel()
	var paths sync.Map
	s := gate(t, func(w http.ResponseWriter, r *http.Request) {
		paths.Store(r.URL.Path, true)
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Length", "4")
		_, _ = io.WriteString(w, "done")
	}, pass, "")
	for range 50 {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST /upload HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"+
			"40\r\n"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		answer := bufio.NewReader(c)
		resp, err := http.ReadResponse(answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_, _ = io.WriteString(c, "GET /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n")
		if rest, _ := io.ReadAll(answer); len(rest) > 0 || !resp.Close {
			t.Fatalf("the connection is still open (close: %v): %q", resp.Close, rest)
		}
		c.Close()
	}
	if _, smuggled := paths.Load("/smuggled"); smuggled {
		t.Error("the rest of an upload was read as a request")
	}
}
