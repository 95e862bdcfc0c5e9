package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/telemetry"
)

// counts returns the counters of an upstream, as in "2xx 3, timeout 1".
func counts(u *telemetry.UpstreamStats) string {
	var all []string
	t := u.Totals()
	for class, h := range t.Took {
		n := uint64(0)
		for _, in := range h.Counts {
			n += in
		}
		if n > 0 {
			all = append(all, fmt.Sprintf("%dxx %d", class+1, n))
		}
	}
	for kind, n := range t.Errors {
		if n > 0 {
			all = append(all, fmt.Sprintf("%v %d", telemetry.UpstreamError(kind), n))
		}
	}
	if n := u.InFlight(); n > 0 {
		all = append(all, fmt.Sprintf("in flight %d", n))
	}
	return strings.Join(all, ", ")
}

// measuredTo returns a gateway to u with the upstream's counters.
func measuredTo(u Upstream) (http.Handler, *telemetry.UpstreamStats) {
	stats := telemetry.NewUpstreamStats("up")
	u.Stats = func(*url.URL) *telemetry.UpstreamStats { return stats }
	u.Trusted, u.Log = func() []netip.Prefix { return nil }, slog.New(slog.DiscardHandler)
	return Handler(u), stats
}

// Each request to an upstream is counted once, by its result, whether direct or a Transport sends it.
func TestUpstreamCounts(t *testing.T) {
	t.Parallel()
	other, plain := httptest.NewTLSServer(nil), httptest.NewServer(nil)
	t.Cleanup(other.Close)
	t.Cleanup(plain.Close)
	// The empty answer closes the connection.
	speaks := func(answer string) (url string) {
		s := newScripted(t, func(int) ([]byte, bool) { return []byte(answer), answer == "" })
		return "http://" + s.Addr().String()
	}
	const key = "dGhlIHNhbXBsZSBub25jZQ=="
	const webSocket = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
	for _, test := range []struct {
		name, url string
		upgrade   bool
		want      string
	}{
		{"200", speaks("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), false, "2xx 3"},
		{"hints", speaks("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"), false, "2xx 3"},
		{"304", speaks("HTTP/1.1 304 Not Modified\r\n\r\n"), false, "3xx 3"},
		{"404", speaks("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), false, "4xx 3"},
		{"503", speaks("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), false, "5xx 3"},
		{"999", speaks("HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), false, "5xx 3"},
		{"closed", speaks(""), false, "closed 3"},
		{"half a head", speaks("HTTP/1.1 200 OK\r\nContent-"), false, "timeout 3"},
		{"no HTTP", speaks("220 mail.test ESMTP\r\n\r\n"), false, "malformed 3"},
		{"odd field", speaks("HTTP/1.1 200 OK\r\nno colon\r\n\r\n"), false, "malformed 3"},
		{"large head", speaks("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHead) + "\r\n\r\n"), false, "malformed 3"},
		{"refused", "http://" + testkit.Addr(t), false, "connect 3"},
		{"unknown authority", other.URL, false, "tls 3"},
		{"no TLS", "https://" + plain.Listener.Addr().String(), false, "tls 3"},
		{"WebSocket", speaks(webSocket + acceptKey(key) + "\r\n\r\n"), true, "1xx 3"},
		{"no WebSocket", speaks(webSocket + "AAAA\r\n\r\n"), true, "malformed 3"},
	} {
		for _, way := range []string{"direct", "transport"} {
			t.Run(test.name+"/"+way, func(t *testing.T) {
				t.Parallel()
				target, err := url.Parse(test.url)
				if err != nil {
					t.Fatal(err)
				}
				timeout := time.Minute
				if strings.HasPrefix(test.want, "timeout") {
					timeout = 100 * time.Millisecond
				}
				h, stats := measuredTo(Upstream{URL: target, Timeout: timeout})
				gateway := httptest.NewServer(h)
				defer gateway.Close()
				for range 3 {
					r, err := http.NewRequest(http.MethodGet, gateway.URL, nil)
					if way == "transport" {
						r, err = http.NewRequest(http.MethodPost, gateway.URL, iotest.OneByteReader(strings.NewReader("of unknown length")))
					}
					if err != nil {
						t.Fatal(err)
					}
					if test.upgrade {
						for name, v := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key} {
							r.Header.Set(name, v)
						}
					}
					resp, err := http.DefaultTransport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				if got := counts(stats); got != test.want {
					t.Errorf("counted as %s, want %s", got, test.want)
				}
			})
		}
	}
}

// A request is in flight until the upstream answers. If the client leaves, it is counted as canceled.
func TestUpstreamInFlight(t *testing.T) {
	t.Parallel()
	arrived := make(chan bool)
	behind := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices the client's departure only after the body
		arrived <- true
		<-r.Context().Done()
	}))
	defer behind.Close()
	target, err := url.Parse(behind.URL)
	if err != nil {
		t.Fatal(err)
	}
	h, stats := measuredTo(Upstream{URL: target})
	gateway := httptest.NewServer(h)
	defer gateway.Close()
	ctx, leave := context.WithCancel(t.Context())
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, err := http.NewRequestWithContext(ctx, method, gateway.URL, strings.NewReader(strings.Repeat("x", 20_000)))
		if method == http.MethodGet {
			r, err = http.NewRequestWithContext(ctx, method, gateway.URL, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
		}()
		<-arrived
	}
	if got := counts(stats); got != "in flight 2" {
		t.Errorf("%s", got)
	}
	leave()
	testkit.Await(t, "both requests are counted as canceled", func() bool { return counts(stats) == "canceled 2" })
}

// The measured time starts after the upload, and ends with the head of the response.
func TestUpstreamDuration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size   int
		length int64 // -1: unknown
		err    error
	}{
		"no body":           {},
		"small body":        {size: 1000, length: 1000},
		"large body":        {size: 100_000, length: 100_000},
		"of unknown length": {size: 100_000, length: -1},
		"broken off":        {size: 100_000, length: -1, err: errors.New("reset")},
	} {
		synctest.Test(t, func(t *testing.T) {
			pipes := testkit.NewPipes()
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				time.Sleep(2 * time.Second)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Second)
			})}
			go server.Serve(pipes)
			defer server.Close()
			h, stats := measuredTo(Upstream{URL: &url.URL{Scheme: "http", Host: "up.test"}, Dial: pipes.Dial})
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			if test.size > 0 {
				body := slowly(100, strings.Repeat("x", test.size/100), 50*time.Millisecond, test.err)()
				r.Body, r.ContentLength = &clientBody{ReadCloser: io.NopCloser(body), control: http.NewResponseController(httptest.NewRecorder())}, test.length
			}
			h.ServeHTTP(httptest.NewRecorder(), r)
			if name == "broken off" {
				if got := counts(stats); got != "canceled 1" {
					t.Errorf("%s: %s", name, got)
				}
				return
			}
			if took := stats.Totals().Took[1]; took.Sum != 2*time.Second || counts(stats) != "2xx 1" {
				t.Errorf("%s: %v, %s", name, took.Sum, counts(stats))
			}
		})
	}
}

// Counting a request allocates nothing.
func TestMeasuringDoesNotAllocate(t *testing.T) {
	stats := telemetry.NewUpstreamStats("up")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	resp := &http.Response{StatusCode: 200}
	if n := testing.AllocsPerRun(100, func() { finish(stats.Begin(), r, resp, nil, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMeasuring(b *testing.B) {
	stats := telemetry.NewUpstreamStats("up")
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	resp := &http.Response{StatusCode: 200}
	b.ReportAllocs()
	for b.Loop() {
		finish(stats.Begin(), r, resp, nil, 0)
	}
}
