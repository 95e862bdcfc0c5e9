package httplimit

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// If a client has left, or its deadline is before its turn, the turn is given up with all its units, and the response
// has no fields of the limit.
func TestQueueGivesUp(t *testing.T) {
	t.Parallel()
	for name, within := range map[string]time.Duration{"a deadline before the turn": 500 * time.Millisecond, "a client that has left": -1} {
		synctest.Test(t, func(t *testing.T) {
			limiter := policytest.Limiter(t, memory.New(), "1/second burst 5 as leaky_bucket")
			h := LimitBy(func(*http.Request) (Choice, error) { return Choice{Limiter: limiter, Key: "k", Cost: 4}, nil })(things)
			if _, err := limiter.Take(t.Context(), "k", 1); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			w := recorded(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
			if d, err := limiter.Take(t.Context(), "k", 4); err != nil || d.Delay != time.Second || time.Since(start) != 0 {
				t.Errorf("%s: after %v, the next request waits for %v: %v", name, time.Since(start), d.Delay, err)
			}
			if within > 0 && (w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"violated-policies":["default"]`)) {
				t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
			}
			for field := range w.Header() {
				if strings.Contains(field, "Ratelimit") {
					t.Errorf("%s: the response has %s", name, field)
				}
			}
		})
	}
}

// A real client that hangs up while it is queued gives up its turn, whatever it has sent of a body.
func TestQueueHangUp(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]string{
		"no body":   "\r\n",
		"body":      "Content-Length: 4\r\n\r\nbody",
		"no length": "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		"half":      "Content-Length: 4\r\n\r\nbo",
		"64 KiB":    "Content-Length: 65536\r\n\r\n" + strings.Repeat("x", 64<<10),
	} {
		limiter := policytest.Limiter(t, memory.New(), "1/hour burst 3 as leaky_bucket")
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
		awaitDelay(t, name, limiter, 2) // the request is in the queue
		c.Close()
		awaitDelay(t, name, limiter, 1)
	}
}

// The handler gets the part of the body that was read while the request waited.
func TestQueueKeepsBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limiter := policytest.Limiter(t, memory.New(), "1/second burst 3 as leaky_bucket")
		h := Limit(limiter, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
		for _, body := range []string{"", "first", strings.Repeat("x", 70<<10)} {
			if w := recorded(h, httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader(body)))); w.Code != 200 || w.Body.String() != body {
				t.Errorf("%d %.100q, want %.100q", w.Code, w.Body, body)
			}
		}
	})
}

// awaitDelay waits until the next turn under the key "all" is the given number of hours away.
func awaitDelay(t *testing.T, what string, limiter *sluice.Limiter, hours float64) {
	t.Helper()
	testkit.Await(t, fmt.Sprintf("%s: the next turn is %v hours away", what, hours), func() bool {
		d, _ := limiter.Peek(t.Context(), "all")
		return math.Ceil(d.Delay.Hours()) == hours
	})
}

// The log reports once that the store is unavailable, and once that it is available again. With DegradedField,
// responses report that a decision was made without the store.
func TestStoreUnavailable(t *testing.T) {
	t.Parallel()
	store := faultstore.New(memory.New())
	var log bytes.Buffer
	limiter := policytest.Limiter(t, store, "100/minute")
	h := Config{DegradedField: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}.Limit(limiter, nil)(things)
	for i, fault := range []faultstore.Fault{nil, faultstore.Refused, faultstore.Refused, nil, faultstore.Refused} {
		store.Set(fault)
		w := recorded(h, httptest.NewRequest("GET", "/", nil))
		known, degraded := w.Header()["Ratelimit"] != nil, w.Header().Get("X-RateLimit-Degraded") == "true"
		if w.Code != 200 || known != (fault == nil) || degraded != (fault != nil) {
			t.Errorf("request %d: %d %v", i, w.Code, w.Header())
		}
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "connection refused") || !strings.Contains(lines[1], "again") {
		t.Errorf("log: %s", log.String())
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

var errDatabase = errors.New("the database is unavailable")

// plans returns a function that chooses a limiter by the field X-Plan, and a key by X-Key.
func plans(t *testing.T) func(*http.Request) (Choice, error) {
	store := memory.New()
	limiters := map[string]*sluice.Limiter{
		"free": policytest.Limiter(t, store, "2/hour"),
		"pro":  policytest.Limiter(t, store, "5/hour"),
	}
	return func(r *http.Request) (Choice, error) {
		c := Choice{Key: r.Header.Get("X-Key")}
		switch plan := r.Header.Get("X-Plan"); {
		case plan == "staff":
			return Choice{}, nil
		case plan == "broken":
			return c, errDatabase
		case c.Key == "":
			return c, fmt.Errorf("plans: %w", MissingError("an X-Key header"))
		default:
			c.Limiter = limiters[plan]
		}
		if r.Method == "POST" {
			c.Cost = 2
		}
		return c, nil
	}
}

// Errors of the function that chooses a limiter are logged at most once a second.
func TestLimitByLogs(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}.LimitBy(plans(t))(things)
	for range 2 {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("X-Plan", "broken")
		recorded(h, r)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), errDatabase.Error()) {
		t.Errorf("two failures within a second were logged as %q", log.String())
	}
}
