package httplimit

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// underWay returns how many of the two permits of the rule "all" are taken.
func underWay(t *testing.T, e *policy.Engine) int64 {
	t.Helper()
	return 2 - policytest.Remaining(t, e, "all")
}

// A request is in flight until its handler has returned or panicked. A denied request takes no permit.
func TestInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policytest.Engine(t, `
version: 1
rules:
  - {name: all, in_flight: 2}
  - {name: outcome, match: /settled, limit: 100/day, count: {status: 401}}
  - {name: keyed, match: /keyed, key: [api_key], missing: refuse, limit: 1/day}`)
		end := make(chan bool)
		handler := Config{KeepDecision: true}.Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, ok := DecisionFrom(r.Context()); !ok || !d.Held() {
				t.Errorf("%s: a handler without a permit", r.URL)
			}
			w.WriteHeader(http.StatusUnauthorized)
			<-end
			if r.URL.Path == "/panic" {
				panic(http.ErrAbortHandler)
			}
		}))
		var all sync.WaitGroup
		for _, path := range []string{"/plain", "/settled", "/panic", "/keyed"} {
			all.Go(func() {
				defer func() { _ = recover() }()
				recorded(handler, httptest.NewRequest("GET", path, nil))
			})
			synctest.Wait()
			want := int64(1)
			if path == "/keyed" {
				want = 0
			}
			if n := underWay(t, e); n != want {
				t.Errorf("%s: %d in flight, want %d", path, n, want)
			}
			if want > 0 {
				end <- true
			}
			all.Wait()
			if n := underWay(t, e); n != 0 {
				t.Errorf("%s: %d in flight after the handler has returned", path, n)
			}
		}
	})
}

// A request that is rejected without a decision reuses the memory of another request, and does not release the permit
// of that request.
func TestInFlightMemory(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, "rules: [{name: all, in_flight: 2}]")
	var handler http.Handler
	handler = Policy(e)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for range 20 { // some of these reuse memory of other requests
			odd := httptest.NewRequest("GET", "/", nil)
			odd.Host = "no host"
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, odd); w.Code != http.StatusBadRequest {
				t.Errorf("status %d, want 400", w.Code)
			}
		}
		if n := underWay(t, e); n != 1 {
			t.Errorf("%d in flight, want this one", n)
		}
	}))
	for range 10 {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	if n := underWay(t, e); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// A hijacked connection is in flight as long as its handler runs.
func TestInFlightHijacked(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, "rules: [{name: all, in_flight: 2}]")
	server := httptest.NewUnstartedServer(Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	})))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n := underWay(t, e); n != 1 {
		t.Errorf("%d in flight", n)
	}
	conn.Close()
	testkit.Await(t, "the connection is no longer in flight", func() bool { return underWay(t, e) == 0 })
}

// A client that leaves a queue releases its permit.
func TestInFlightQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policytest.Engine(t, `
version: 1
rules:
  - {name: all, in_flight: 2}
  - {name: slow, limit: 1/hour burst 5, algorithm: leaky_bucket}`)
		handler := Policy(e)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		})
		synctest.Wait()
		if n := underWay(t, e); n != 1 {
			t.Errorf("%d in flight while one waits for its turn", n)
		}
		cancel()
		all.Wait()
		if n := underWay(t, e); n != 0 {
			t.Errorf("%d in flight", n)
		}
	})
}

// With AuthOnly, another server serves the request: the request takes no permit, and is denied if none is free.
func TestInFlightAuthOnly(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, "rules: [{name: all, in_flight: 2}]")
	auth := Config{AuthOnly: true}.Policy(e)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n := underWay(t, e); n != 0 {
			t.Errorf("%d in flight", n)
		}
	}))
	ask := func() int {
		w := httptest.NewRecorder()
		auth.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	for range 3 {
		if got := ask(); got != http.StatusOK {
			t.Errorf("status %d, want 200", got)
		}
	}
	for range 2 {
		e.Decide(t.Context(), &policy.Request{Ends: true})
	}
	if got := ask(); got != http.StatusTooManyRequests {
		t.Errorf("status %d with all permits taken", got)
	}
}

// slowToFree is a store that is slow to release permits.
type slowToFree struct{ *memory.Store }

func (s slowToFree) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if charges[0].Cost < 0 {
		time.Sleep(20 * time.Millisecond)
	}
	return s.Store.Take(ctx, charges, receipts)
}

// A client that sends a request after it has read a whole response is not denied because of the previous request,
// however the handler wrote the response.
func TestInFlightOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const size = 100_000
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", size)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, orders := range []string{
		"write 100000", "text 100000", "copy 100000", "text 99998; text 1; text 1", strings.Repeat("text 1000;", 100), "file",
	} {
		e := policy.NewEngine(slowToFree{memory.New()}, policytest.Parse(t, "rules: [{name: all, in_flight: 1}]"))
		server := httptest.NewServer(Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(size))
			if r.Header.Set("Do", orders); orders == "file" {
				http.ServeFile(w, r, file)
			}
			obey(w, r)
		})))
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // on one connection, the server would wait for the previous handler
		for range 5 {
			resp, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || len(body) != size {
				t.Fatalf("%.20s: %d, %d bytes, %v", orders, resp.StatusCode, len(body), err)
			}
		}
		server.Close()
	}
}
