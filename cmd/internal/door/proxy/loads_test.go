package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

const thinks = 300 * time.Millisecond

// loaded is a gateway with an automatic limit, in memory and virtual time.
type loaded struct {
	t      *testing.T
	engine *policy.Engine
	pipes  *testkit.Pipes
	client *http.Client
	broken bool // the upstream does not respond
	down   bool // the upstream refuses connections
	mu     sync.Mutex
	last   net.Conn // the last connection to the upstream
}

// newLoaded returns a gateway that speaks the same version of HTTP to clients and upstream.
func newLoaded(t *testing.T, u Upstream, http2 bool, upstream http.HandlerFunc) *loaded {
	l := &loaded{t: t, engine: policytest.Engine(t, "rules: [{name: capacity, in_flight: auto}]"), pipes: testkit.NewPipes()}
	behind := testkit.NewPipes()
	u.URL = &url.URL{Scheme: "http", Host: "upstream.example:80"}
	if http2 {
		u.URL.Scheme = "h2c"
	}
	u.Trusted, u.Log = func() []netip.Prefix { return nil }, slog.New(slog.DiscardHandler)
	u.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if l.down {
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		c, err := behind.Dial(ctx, network, address)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.last = c
		return c, err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	up := &http.Server{Handler: upstream, Protocols: &protocols, ErrorLog: slog.NewLogLogger(u.Log.Handler(), slog.LevelError)}
	go func() { _ = up.Serve(behind) }()
	server := &httptest.Server{Listener: l.pipes, EnableHTTP2: http2}
	server.Config = Server(Clean(u, httplimit.Policy(l.engine)(Handler(u))), Client{HeaderTimeout: time.Minute, StallTimeout: 2 * time.Second, MaxHeader: 64 << 10, Log: u.Log})
	server.StartTLS()
	transport := server.Client().Transport.(*http.Transport)
	transport.DialContext = l.pipes.Dial
	l.client = server.Client()
	t.Cleanup(func() {
		up.Close()
		server.Close()
	})
	return l
}

// state returns the state of the limit. It fails if requests are in flight.
func (l *loaded) state() policy.LoadState {
	l.t.Helper()
	synctest.Wait()
	state := policytest.Load(l.t, l.engine)
	if state.InFlight != 0 {
		l.t.Fatalf("%+v", state)
	}
	return state
}

// ask sends a request and returns the status, or 0 if there is no response.
func (l *loaded) ask(method string, body io.Reader) int {
	l.t.Helper()
	r, err := http.NewRequestWithContext(l.t.Context(), method, "https://example.com/", body)
	if err != nil {
		l.t.Fatal(err)
	}
	response, err := l.client.Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// wants sends 20 requests. It checks their status and the latency that the limit has learnt; 0 means unknown. If the
// status is not 200 and the upstream responds, each request is followed by one that must get 200.
func (l *loaded) wants(method string, body func() io.Reader, status int, latency time.Duration) {
	l.t.Helper()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			time.Sleep(time.Duration(i) * time.Second / 4)
			var upload io.Reader
			if body != nil {
				upload = body()
			}
			if got := l.ask(method, upload); got != status {
				l.t.Errorf("status %d, want %d", got, status)
			}
			if status != http.StatusOK && !l.broken && l.ask("GET", nil) != http.StatusOK {
				l.t.Error("no 200")
			}
		})
	}
	all.Wait()
	time.Sleep(time.Minute) // wait until the writers of bodies have ended
	if s := l.state(); s.Latency < latency*9/10 || s.Latency > latency*11/10 {
		l.t.Errorf("the latency is %v, want %v", s.Latency, latency)
	}
}

// slowly returns a function that returns a body. The body arrives in pieces, and ends with the error end if it is not
// nil.
func slowly(pieces int, piece string, every time.Duration, end error) func() io.Reader {
	return func() io.Reader {
		r, w := io.Pipe()
		go func() {
			for range pieces {
				time.Sleep(every)
				if _, err := io.WriteString(w, piece); err != nil {
					return
				}
			}
			_ = w.CloseWithError(end)
		}()
		return r
	}
}

func forVersions(t *testing.T, run func(t *testing.T, http2 bool)) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP/1.1", true: "HTTP/2"}[http2], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { run(t, http2) })
		})
	}
}

// The latency is the time that the upstream takes. Neither slow uploads nor the gateway's own answers change it.
func TestLatencyOfUpstream(t *testing.T) {
	forVersions(t, func(t *testing.T, http2 bool) {
		reads := func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				time.Sleep(thinks)
			}
		}
		large := Upstream{MaxBody: 10}
		newLoaded(t, Upstream{}, http2, reads).wants("GET", nil, http.StatusOK, thinks)
		newLoaded(t, Upstream{}, http2, reads).wants("HEAD", nil, http.StatusOK, thinks)
		newLoaded(t, Upstream{}, http2, reads).wants("POST", func() io.Reader { return strings.NewReader("small") }, http.StatusOK, thinks)
		newLoaded(t, Upstream{}, http2, reads).wants("POST", slowly(3, "a text", time.Second, nil), http.StatusOK, thinks)
		newLoaded(t, large, http2, reads).wants("POST", slowly(3, "a text", time.Second, nil), http.StatusRequestEntityTooLarge, thinks)
		newLoaded(t, Upstream{}, http2, reads).wants("POST", slowly(2, "a text", 9*time.Second, nil), http.StatusRequestTimeout, thinks)
		newLoaded(t, Upstream{}, http2, reads).wants("POST", slowly(1, "a text", time.Second, errors.New("gone")), 0, thinks)
	})
}

// An upstream that is down, from the start or later, does not change what the limit has learnt.
func TestDeadUpstream(t *testing.T) {
	forVersions(t, func(t *testing.T, http2 bool) {
		var l *loaded
		l = newLoaded(t, Upstream{Timeout: 5 * time.Second}, http2, func(_ http.ResponseWriter, r *http.Request) {
			if l.broken {
				<-r.Context().Done()
				return
			}
			time.Sleep(thinks)
		})
		l.down, l.broken = true, true
		l.wants("GET", nil, http.StatusBadGateway, 0)
		l.down, l.broken = false, false
		l.wants("GET", nil, http.StatusOK, thinks)
		learnt := l.state()
		l.down, l.broken = true, true
		l.mu.Lock()
		_ = l.last.Close()
		l.mu.Unlock()
		l.wants("GET", nil, http.StatusBadGateway, thinks)
		l.down = false
		l.wants("GET", nil, http.StatusGatewayTimeout, thinks)
		if s := l.state(); s.Base != learnt.Base || s.Limit != learnt.Limit {
			t.Errorf("before it was down: %+v, and after: %+v", learnt, s)
		}
	})
}
