//go:build long

package python

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// A call is repeated if its answer is lost on a kept connection, and the request is charged once.
func TestLongAskedAgain(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		r := newRelay(t, service(t, odd).Check)
		url := app("SLUICE_URL=" + r.URL)
		for i, want := range []string{"99", "98", "97"} {
			if i > 0 {
				r.loseNext("/v1/check")
			}
			if got := do(t, "GET", url+"/plain", ""); got.status != 200 || remaining(got) != want {
				t.Errorf("request %d: %d, %q remain, want %s", i, got.status, remaining(got), want)
			}
		}
		if n := r.count("/v1/check"); n != 5 {
			t.Errorf("premise: %d calls, want 5", n)
		}
		for i, want := range []string{"19", "16", "13"} { // the outcome costs 3
			r.loseNext("/v1/settle")
			if got := do(t, "GET", url+"/priced", ""); remaining(got) != want {
				t.Errorf("priced request %d: %q remain, want %s", i, remaining(got), want)
			}
		}
	})
}

// While the service is down, on_error decides. After a restart, the first request is checked again.
func TestLongServiceRestarts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		addr := testkit.Addr(t)
		first := service(t, odd, "--check", addr)
		url := app("SLUICE_URL=http://"+addr, "SLUICE_ON_ERROR=deny")
		for _, want := range []string{"99", "98"} {
			if got := do(t, "GET", url+"/plain", ""); remaining(got) != want {
				t.Fatalf("%q remain, want %s", remaining(got), want)
			}
		}
		first.Stop()
		got := do(t, "GET", url+"/plain", "")
		want := `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Service Unavailable","status":503,` +
			`"detail":"Limits cannot be checked at the moment. Retry in 1 s.","error":"temporary_reduced_capacity","retry_after":1}` + "\n"
		if got.status != 503 || got.body != want || got.header.Get("Retry-After") != "1" || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("without the service: %d %v\n%s", got.status, got.header, got.body)
		}
		service(t, odd, "--check", addr)
		if got := do(t, "GET", url+"/plain", ""); got.status != 200 || remaining(got) != "99" {
			t.Errorf("after its restart: %d, %q remain\n%s", got.status, remaining(got), got.body)
		}
	})
}

// While the service does not answer, the first five requests wait for the deadline, and later requests do not wait.
func TestLongServiceHangs(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		r := newRelay(t, service(t, odd).Check)
		url := app("SLUICE_URL="+r.URL, "SLUICE_DEADLINE=0.5")
		do(t, "GET", url+"/plain", "")
		r.shut()
		for range 4 {
			began := time.Now()
			got := do(t, "GET", url+"/plain", "")
			if took := time.Since(began); got.status != 200 || remaining(got) != "" || took < 400*time.Millisecond || took > 5*time.Second {
				t.Errorf("%d, %q remain, after %v", got.status, remaining(got), took)
			}
		}
		do(t, "GET", url+"/plain", "")
		before := r.count("/v1/check")
		for range 50 {
			do(t, "GET", url+"/plain", "")
		}
		if asked := r.count("/v1/check") - before; asked > 10 {
			t.Errorf("%d of 50 requests made a check", asked)
		}
		r.open()
		testkit.Await(t, "limits hold again", func() bool { return remaining(do(t, "GET", url+"/plain", "")) != "" })
	})
}

type reply struct {
	status int
	body   string
}

// garbage are responses of servers that are not the service.
var garbage = []reply{
	{200, `{"foo":1}`},
	{200, `null`},
	{200, `[]`},
	{200, `"text"`},
	{200, `<html>`},
	{200, ``},
	{200, `{"answers":[]}`},
	{200, `{"answers":[null]}`},
	{200, `{"allowed":"false","status":429,"headers":{},"delay":0}`},
	{200, `{"allowed":true,"status":200,"headers":{"X":1},"delay":0}`},
	{200, `{"allowed":true,"status":200,"headers":{},"delay":-1}`},
	{200, `{"allowed":true,"status":200,"headers":{},"delay":NaN}`},
	{200, `{"allowed":true,"status":200,"headers":{},"delay":1e9}`},
	{200, strings.Repeat("[", 100_000)},
	{400, `<html>Client sent an HTTP request to an HTTPS server.</html>`},
	{415, ``},
	{404, `{"detail":"unknown path"}`},
	{302, ``},
}

// If another server responds at the address of the service, on_error decides.
func TestLongGarbage(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		var body atomic.Pointer[reply]
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(body.Load().status)
			_, _ = io.WriteString(w, body.Load().body)
		}))
		t.Cleanup(s.Close)
		for on, want := range map[string]int{"allow": 200, "deny": 503} {
			url := app("SLUICE_URL="+s.URL, "SLUICE_ON_ERROR="+on)
			for _, g := range garbage {
				body.Store(&g)
				if got := do(t, "GET", url+"/plain", ""); got.status != want {
					t.Errorf("%d %.60s with on_error=%s: %d %s", g.status, g.body, on, got.status, got.body)
				}
				body.Store(&reply{200, `{"allowed":true,"status":200,"headers":{"X-Asked":"yes"},"delay":0}`})
				if got := do(t, "GET", url+"/plain", ""); got.header.Get("X-Asked") != "yes" {
					t.Errorf("premise: after %d %.60s the service gets no call: %d", g.status, g.body, got.status)
				}
			}
		}
	})
}

// Checks that wait while calls are under way share the next one.
func TestLongBatches(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		r := newRelay(t, service(t, odd).Check)
		url := app("SLUICE_URL=" + r.URL)
		r.shut()
		var wg sync.WaitGroup
		left := make(chan string, 40)
		for range 40 {
			wg.Go(func() { left <- remaining(do(t, "GET", url+"/plain", "")) })
		}
		testkit.Await(t, "all others wait", func() bool {
			waiting, _ := strconv.Atoi(do(t, "GET", url+"/waiting", "").body)
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.asked+waiting == 40
		})
		r.open()
		wg.Wait()
		close(left)
		seen := map[string]bool{}
		for n := range left {
			seen[n] = true
		}
		if calls := r.count("/v1/check"); calls > 5 || len(seen) != 40 || seen[""] {
			t.Errorf("%d calls, %d different answers, want at most 5, and 40", calls, len(seen))
		}
		for range 20 {
			do(t, "GET", url+"/priced", "") // with a check and an outcome
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.connections > 4 {
			t.Errorf("%d connections, want at most 4", r.connections)
		}
	})
}

// Costs are settled by the report of the handler, by a header field, and by the length of a stream.
func TestLongCosts(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		url := app("SLUICE_URL=http://" + service(t, odd).Check)
		for path, want := range map[string][]string{"/priced": {"19", "16", "13"}, "/header": {"19", "15", "11"}, "/drip": {"19", "16", "13"}} {
			for i, want := range want {
				if got := do(t, "GET", url+path, ""); remaining(got) != want {
					t.Errorf("%s %d: %q remain, want %s", path, i, remaining(got), want)
				}
			}
		}
	})
}

// Bodies reach the application unchanged, whether they are checked or not.
func TestLongBodies(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		url := app("SLUICE_URL=http://" + service(t, odd).Check)
		for path, size := range map[string]int{"/upload": 5 << 20, "/checked/upload": 1 << 20} {
			body := strings.Repeat("\xff123456789abcdef", size/16)
			if got, want := do(t, "POST", url+path, body), fmt.Sprintf("%x", sha256.Sum256([]byte(body))); got.body != want {
				t.Errorf("%s: %d %s, want %s", path, got.status, got.body, want)
			}
		}
		for _, character := range []string{"一", "\x01"} { // which JSON escapes
			body := strings.Repeat(character, 1_000_000/len(character))
			if got, want := do(t, "POST", url+"/checked/upload", body), fmt.Sprintf("%x", sha256.Sum256([]byte(body))); got.body != want {
				t.Errorf("%q: %d %s, want %s", character, got.status, got.body, want)
			}
		}
		got := do(t, "POST", url+"/checked/upload", strings.Repeat("a", 1<<20+1))
		if got.status != 413 || !strings.Contains(got.body, `"error":"body_too_large"`) {
			t.Errorf("a body that is too large: %d %s", got.status, got.body)
		}
	})
}

// Late answers to large checks do not stop the other checks.
func TestLongLargeChecks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		r := newRelay(t, service(t, odd).Check)
		r.slow = true
		url := app("SLUICE_URL="+r.URL, "SLUICE_DEADLINE=3")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() { do(t, "POST", url+"/checked/upload", strings.Repeat("a", 100<<10)) })
		}
		testkit.Await(t, "all of them wait", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.large == 8
		})
		for _, want := range []string{"99", "98"} {
			if got := do(t, "GET", url+"/plain", ""); remaining(got) != want {
				t.Errorf("%d, %q remain, want %s", got.status, remaining(got), want)
			}
			wg.Wait()
		}
	})
}

// Requests with more fields than a check may have are rejected, and never pass unchecked.
func TestLongFields(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		url := app("SLUICE_URL=http://" + service(t, odd).Check)
		var many []string
		for i := range 300 {
			many = append(many, "X-"+strconv.Itoa(i)+": 1")
		}
		if got := do(t, "GET", url+"/plain", "", many...); got.status != 431 {
			t.Errorf("%d %s", got.status, got.body)
		}
		if got := do(t, "GET", url+"/plain", "", many[:200]...); got.status != 200 || remaining(got) != "99" {
			t.Errorf("%d, %q remain", got.status, remaining(got))
		}
	})
}

// A request waits for its turn in a queue. The turn is released if the client leaves.
func TestLongQueue(t *testing.T) {
	t.Parallel()
	needs(t, "starlette", "uvicorn")
	r := newRelay(t, service(t, odd).Check)
	url := app(t, "uvicorn", "odd_starlette:app", "SLUICE_URL="+r.URL)
	do(t, "GET", url+"/queue", "")
	began := time.Now()
	if got := do(t, "GET", url+"/queue", ""); got.status != 200 || time.Since(began) < 500*time.Millisecond {
		t.Errorf("%d after %v", got.status, time.Since(began))
	}
	do(t, "GET", url+"/queue", "")
	released := r.count("/v1/release")
	checks := r.count("/v1/check")
	ctx, leave := context.WithCancel(t.Context())
	q, _ := http.NewRequestWithContext(ctx, "GET", url+"/queue", nil)
	go func() {
		if resp, err := http.DefaultClient.Do(q); err == nil {
			resp.Body.Close()
		}
	}()
	testkit.Await(t, "the client waits", func() bool { return r.count("/v1/check") > checks })
	leave()
	testkit.Await(t, "the turn is released", func() bool { return r.count("/v1/release") > released })
}

// A WebSocket counts as one request, and is denied before it is open.
func TestLongWebSocket(t *testing.T) {
	t.Parallel()
	for server, refused := range map[string]int{"uvicorn": 403, "hypercorn": 429} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			needs(t, "starlette", server, "wsproto")
			url := app(t, server, "odd_starlette:app", "SLUICE_URL=http://"+service(t, odd).Check)
			resp := handshake(t, url)
			if resp.StatusCode != 101 || !strings.HasPrefix(resp.Header.Get("Ratelimit"), `"ws";r=0;`) {
				t.Errorf("%v", resp)
			}
			resp = handshake(t, url)
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != refused {
				t.Errorf("%v", resp)
			}
			if refused == 429 && (resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"rate_limit_exceeded"`)) {
				t.Errorf("%v\n%s", resp, body)
			}
		})
	}
}

func handshake(t *testing.T, to string) *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(to, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	_, _ = io.WriteString(c, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
