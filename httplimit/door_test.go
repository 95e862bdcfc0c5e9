package httplimit

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// A deadline that is nearer than the turn is a refusal at once.
func TestQueueDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := mustLimiter(t, memory.New(), "1/second burst 3", sluice.LeakyBucket)
		h := Limit(limiter, nil)(things)
		start := time.Now()
		recorded(h, httptest.NewRequest("GET", "/", nil))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		w := recorded(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		left, _ := limiter.Peek(t.Context(), "192.0.2.1")
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || time.Since(start) != 0 || left.Delay != time.Second {
			t.Errorf("%d %v after %v, the next turn is in %v", w.Code, w.Header(), time.Since(start), left.Delay)
		}
		if !strings.Contains(w.Body.String(), `"violated-policies":["default"]`) {
			t.Errorf("%s", w.Body)
		}
		// What was said of the limit held before the place was given back.
		for name := range w.Header() {
			if strings.Contains(name, "Ratelimit") {
				t.Errorf("%s is still told", name)
			}
		}
	})
}

// A real client hangs up while it is queued, whatever it has sent of a body.
func TestQueueHangUp(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]string{
		"no body":   "\r\n",
		"body":      "Content-Length: 4\r\n\r\nbody",
		"no length": "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		"half":      "Content-Length: 4\r\n\r\nbo",
		"64 KiB":    "Content-Length: 65536\r\n\r\n" + strings.Repeat("x", 64<<10),
	} {
		limiter := mustLimiter(t, memory.New(), "1/hour burst 3", sluice.LeakyBucket)
		s := httptest.NewServer(Limit(limiter, func(*http.Request) string { return "all" })(things))
		defer s.Close()
		response, err := http.Get(s.URL)
		if err != nil || response.StatusCode != 200 {
			t.Fatal(response, err)
		}
		response.Body.Close()
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\n"+rest); err != nil {
			t.Fatal(err)
		}
		awaitDelay(t, name, limiter, 2) // it is in the queue
		c.Close()
		awaitDelay(t, name, limiter, 1)
	}
}

// What was read while the request waited is there for the handler.
func TestQueueKeepsBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := mustLimiter(t, memory.New(), "1/second burst 3", sluice.LeakyBucket)
		h := Limit(limiter, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
		for _, body := range []string{"", "first", strings.Repeat("x", 70<<10)} {
			if w := recorded(h, httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(body)))); w.Code != 200 || w.Body.String() != body {
				t.Errorf("%d %.100q, want %.100q", w.Code, w.Body, body)
			}
		}
	})
}

// awaitDelay waits until the next turn under the key "all" is so many hours away.
func awaitDelay(t *testing.T, what string, limiter *sluice.Limiter, hours float64) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("%s: the next turn is %v hours away", what, hours), func() bool {
		d, _ := limiter.Peek(t.Context(), "all")
		return math.Ceil(d.Delay.Hours()) == hours
	})
}

func TestStoreAway(t *testing.T) {
	t.Parallel()
	for _, deny := range []bool{false, true} {
		store := &failingStore{Store: memory.New()}
		var log bytes.Buffer
		limiter := mustLimiter(t, store, "100/minute", sluice.TokenBucket)
		if deny {
			limiter.OnError = sluice.Deny
		}
		h := Config{DegradedField: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}.Limit(limiter, nil)(things)
		for i, away := range []bool{false, true, true, false, true} {
			store.away.Store(away)
			w := recorded(h, httptest.NewRequest("GET", "/", nil))
			want := http.StatusOK
			if away && deny {
				want = http.StatusServiceUnavailable
				if w.Header().Get("Retry-After") != "1" || w.Header().Get("Cache-Control") != "no-store" ||
					!strings.Contains(w.Body.String(), "#temporary-reduced-capacity") {
					t.Errorf("%v %s", w.Header(), w.Body)
				}
			}
			known := w.Header()["Ratelimit"] != nil || w.Header()["X-Ratelimit-Limit"] != nil
			degraded := w.Header().Get("X-RateLimit-Degraded") == "true"
			if w.Code != want || known == away || degraded != away {
				t.Errorf("request %d, deny %t: %d %v", i, deny, w.Code, w.Header())
			}
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], "connection refused") || !strings.Contains(lines[1], "again") {
			t.Errorf("log: %s", log.String())
		}
	}
}

// Who leaves before the store has answered is not served, and is not a fault of the store.
func TestLeavingIsNoWayIn(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.
		Limit(mustLimiter(t, &failingStore{Store: memory.New()}, "100/minute", sluice.TokenBucket), nil)(
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("served") }))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	recorded(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	if log.Len() > 0 {
		t.Errorf("log: %s", log.String())
	}
}

// A limit for all before a limit of one route: both are told, and the fields that have
// room for one speak of the inner one.
func TestNestedDoors(t *testing.T) {
	t.Parallel()
	store := memory.New()
	outer := Config{Name: "all"}.Limit(mustLimiter(t, store, "100/minute", sluice.TokenBucket), nil)
	limiter, _ := sluice.NewLimiter(store, "route", sluice.Limit{Count: 1, Period: time.Hour})
	h := outer(Config{Name: "route"}.Limit(limiter, nil)(things))
	for _, want := range []int{200, 429} {
		w := recorded(h, httptest.NewRequest("GET", "/", nil))
		policies := strings.Join(w.Result().Header["Ratelimit-Policy"], ", ")
		if w.Code != want || policies != `"all";q=100;w=60, "route";q=1;w=3600` ||
			len(w.Header()["Ratelimit"]) != 2 || strings.Join(w.Header()["X-Ratelimit-Limit"], "|") != "1" {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
}

func TestWiringErrors(t *testing.T) {
	t.Parallel()
	for name, wire := range map[string]func(){
		"a limiter": func() { Limit(nil, nil) },
		"an engine": func() { Policy(nil) },
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, name) {
					t.Errorf("without %s: %q", name, s)
				}
			}()
			wire()
		}()
	}
}
