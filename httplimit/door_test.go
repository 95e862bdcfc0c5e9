package httplimit

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
)

// recorded calls a handler directly, for the clock of a bubble.
func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := mustLimiter(t, memory.New(), "1/second burst 3", sluice.LeakyBucket)
		start := time.Now()
		var mu sync.Mutex
		var turns []time.Duration
		h := Limit(limiter, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			turns = append(turns, time.Since(start))
		}))
		statuses := make(map[int]int)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				w := recorded(h, httptest.NewRequest("GET", "/", nil))
				mu.Lock()
				defer mu.Unlock()
				statuses[w.Code]++
			})
		}
		wg.Wait()
		if statuses[200] != 3 || statuses[429] != 2 {
			t.Errorf("statuses: %v", statuses)
		}
		for i, turn := range turns {
			if want := time.Duration(i) * time.Second; turn != want {
				t.Errorf("turn %d after %v, want %v", i, turn, want)
			}
		}
	})
}

// A client that leaves the queue gives up its turn, and the handler does not run.
func TestQueueClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := mustLimiter(t, &failingStore{Store: memory.New()}, "1/second burst 3", sluice.LeakyBucket)
		var served atomic.Int32
		h := Limit(limiter, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
		recorded(h, httptest.NewRequest("GET", "/", nil))
		ctx, cancel := context.WithCancel(t.Context())
		go recorded(h, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		synctest.Wait()
		before, _ := limiter.Peek(t.Context(), "192.0.2.1")
		cancel()
		synctest.Wait()
		after, _ := limiter.Peek(t.Context(), "192.0.2.1")
		if before.Delay != 2*time.Second || after.Delay != time.Second || served.Load() != 1 {
			t.Errorf("the next turn is in %v, then in %v; %d served", before.Delay, after.Delay, served.Load())
		}
	})
}

// A deadline that is nearer than the turn is a refusal at once.
func TestQueueDeadline(t *testing.T) {
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
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if d, _ := limiter.Peek(t.Context(), "all"); math.Ceil(d.Delay.Hours()) == hours {
			return
		}
	}
	t.Fatalf("%s: the next turn is never %v hours away", what, hours)
}

// failingStore is a shared store that can be away.
type failingStore struct {
	sluice.Store
	away atomic.Bool
}

func (s *failingStore) Take(ctx context.Context, c []sluice.Charge, r []sluice.Receipt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.away.Load() {
		return errors.New("connection refused")
	}
	return s.Store.Take(ctx, c, r)
}

func TestStoreAway(t *testing.T) {
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

// What a failover store has decided is what is said.
func TestStoreFailsOver(t *testing.T) {
	for on, want := range map[sluice.OnError][]int{
		sluice.Allow: {200, 200, 200, 200},
		sluice.Deny:  {503, 503, 503, 503},
		sluice.Local: {200, 200, 429, 429},
	} {
		shared := &failingStore{Store: memory.New()}
		shared.away.Store(true)
		store := failover.New(failover.Bulkhead(shared, 0), failover.Config{Logger: slog.New(slog.DiscardHandler)})
		defer store.Close()
		limiter := mustLimiter(t, store, "2/hour", sluice.TokenBucket)
		limiter.OnError = on
		h := Config{DegradedField: true, Logger: slog.New(slog.DiscardHandler)}.Limit(limiter, nil)(things)
		for i, want := range want {
			w := recorded(h, httptest.NewRequest("GET", "/", nil))
			if w.Code != want || w.Header().Get("X-RateLimit-Degraded") != "true" {
				t.Errorf("%v, request %d: %d %v, want %d", on, i, w.Code, w.Header(), want)
			}
			if retry := w.Header().Get("Retry-After"); want == 503 && retry != "1" || want == 429 && len(retry) != 4 {
				t.Errorf("%v, request %d: Retry-After %s", on, i, retry)
			}
		}
	}
}

// Who leaves before the store has answered is not served, and is not a fault of the store.
func TestLeavingIsNoWayIn(t *testing.T) {
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

// Handlers get the server's own ResponseWriter.
func TestResponseWriterPassesThrough(t *testing.T) {
	limiter := mustLimiter(t, memory.New(), "100/minute", sluice.TokenBucket)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first\n")
		w.(http.Flusher).Flush()
		<-release
		io.WriteString(w, "second\n")
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		conn, both, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(both, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		both.Flush()
		line, _ := both.ReadString('\n')
		io.WriteString(conn, line)
	})
	s := httptest.NewServer(Limit(limiter, nil)(mux))
	defer s.Close()

	response, err := http.Get(s.URL + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	in := bufio.NewReader(response.Body)
	if line, _ := in.ReadString('\n'); line != "first\n" || response.Header.Get("RateLimit") == "" {
		t.Errorf("%q %v", line, response.Header)
	}
	close(release)
	if line, _ := in.ReadString('\n'); line != "second\n" {
		t.Errorf("%q", line)
	}

	r, _ := http.NewRequest("GET", s.URL+"/upgrade", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "echo")
	response, err = http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	both := response.Body.(io.ReadWriter)
	io.WriteString(both, "hello\n")
	if line, _ := bufio.NewReader(both).ReadString('\n'); line != "hello\n" || response.StatusCode != 101 {
		t.Errorf("%d %q", response.StatusCode, line)
	}
}

// Sixteen clients at once, on real connections: exactly the limit passes.
func TestConcurrent(t *testing.T) {
	limiter := mustLimiter(t, memory.New(), "50/hour", sluice.SlidingWindowLog)
	s := httptest.NewServer(Limit(limiter, nil)(things))
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var passed, refused atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 10 {
				response, err := client.Get(s.URL)
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, response.Body)
				response.Body.Close()
				switch response.StatusCode {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if passed.Load() != 50 || refused.Load() != 110 {
		t.Errorf("%d passed, %d refused", passed.Load(), refused.Load())
	}
}

func TestWiringErrors(t *testing.T) {
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
