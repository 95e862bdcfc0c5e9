package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// pipes count the connections that are made.
type pipes struct {
	*testkit.Pipes
	dials atomic.Int32
}

// serve serves h until the test ends. All goroutines have to have ended by then.
func serve(t *testing.T, h http.Handler) *pipes {
	t.Helper()
	p := &pipes{Pipes: testkit.NewPipes()}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(p) }()
	t.Cleanup(func() { _ = server.Close() })
	return p
}

func (p *pipes) transport(t *testing.T) *http.Transport {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		p.dials.Add(1)
		return p.Dial(ctx, network, address)
	}
	base := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1000}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// script answers each request by the next of its functions, the last for all that follow, and notes
// when they came.
type script struct {
	mu    sync.Mutex
	start time.Time
	steps []http.HandlerFunc
	at    []time.Duration
	body  []string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.at, s.body = append(s.at, time.Since(s.start)), append(s.body, string(body))
	step := s.steps[min(len(s.at), len(s.steps))-1]
	s.mu.Unlock()
	step(w, r)
}

// say answers with a status and fields such as "Retry-After: 17".
func say(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, http.StatusText(status))
	}
}

// run lets f ask a server of these steps in virtual time, without jitter, and returns what the server
// has seen.
func run(t *testing.T, tr *Transport, f func(*http.Client), steps ...http.HandlerFunc) *script {
	t.Helper()
	s := &script{steps: steps}
	synctest.Test(t, func(t *testing.T) {
		s.start = time.Now()
		tr.Base = serve(t, s).transport(t)
		tr.pacer.Random = func(time.Duration) time.Duration { return 0 }
		f(&http.Client{Transport: tr})
	})
	return s
}

func get(t *testing.T, c *http.Client, path string) int {
	t.Helper()
	r, err := c.Get("http://api.test" + path)
	if err != nil {
		t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, r.Body)
	_ = r.Body.Close()
	return r.StatusCode
}

func sameTimes(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the requests came after %v, not %v", got, want)
	}
}

const s = time.Second

func TestRepeatsWhenPromised(t *testing.T) {
	// The server's clock is an hour behind.
	date := func(after time.Duration) []string {
		server := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
		return []string{"Date: " + server.Format(http.TimeFormat), "Retry-After: " + server.Add(after).Format(http.TimeFormat)}
	}
	for name, c := range map[string]struct {
		refusal http.HandlerFunc
		wait    time.Duration
	}{
		"seconds":                   {say(429, "Retry-After: 17"), 17 * s},
		"a date":                    {say(429, date(25*s)...), 25 * s},
		"a date that has passed":    {say(429, date(-25*s)...), 0},
		"503":                       {say(503, "Retry-After: 3"), 3 * s},
		"GitHub's 403":              {say(403, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 20"), 20 * s},
		"GitHub's second 403":       {say(403, "X-RateLimit-Remaining: 9", "X-RateLimit-Reset: 20", "Retry-After: 5"), 5 * s},
		"no Retry-After but a t":    {say(429, `RateLimit: "a";r=0;t=8, "b";r=3;t=40`), 8 * s},
		"Retry-After before t":      {say(429, `RateLimit: "a";r=0;t=8`, "Retry-After: 11"), 11 * s},
		"nothing is left to chance": {say(429), 0},
	} {
		t.Run(name, func(t *testing.T) {
			status := 0
			got := run(t, &Transport{}, func(c *http.Client) { status = get(t, c, "/") }, c.refusal, say(200))
			sameTimes(t, got.at, 0, c.wait)
			if status != 200 {
				t.Errorf("status %d", status)
			}
		})
	}
}

func TestNotRepeated(t *testing.T) {
	post := func(r *http.Request) { r.Method, r.Body = "POST", http.NoBody }
	stream := func(r *http.Request) { r.Method, r.Body = "PUT", io.NopCloser(strings.NewReader("x")) }
	soon := func(r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*s)
		context.AfterFunc(ctx, cancel)
		*r = *r.WithContext(ctx)
	}
	for name, c := range map[string]struct {
		refusal http.HandlerFunc
		change  func(*http.Request)
		maxWait time.Duration
		retries int
	}{
		"an hour is longer than anybody waits": {say(429, "Retry-After: 3600"), nil, 0, 0},
		"longer than MaxWait":                  {say(429, "Retry-After: 6"), nil, 5 * s, 0},
		"not before the deadline":              {say(429, "Retry-After: 6"), soon, 0, 0},
		"at the deadline is too late":          {say(429, "Retry-After: 5"), soon, 0, 0},
		"not at all":                           {say(429, "Retry-After: 1"), nil, 0, -1},
		"POST":                                 {say(429, "Retry-After: 1"), post, 0, 0},
		"a body that cannot be made anew":      {say(429, "Retry-After: 1"), stream, 0, 0},
		"503 without Retry-After":              {say(503), nil, 0, 0},
		"403 with something left":              {say(403, "X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 20"), nil, 0, 0},
		"an error of the server":               {say(500, "Retry-After: 1"), nil, 0, 0},
		"a redirect that takes its time":       {say(301, "Retry-After: 1"), nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &Transport{MaxWait: c.maxWait, MaxRetries: c.retries}
			var took time.Duration
			got := run(t, tr, func(client *http.Client) {
				r, _ := http.NewRequest("GET", "http://api.test/", nil)
				if c.change != nil {
					c.change(r)
				}
				began := time.Now()
				response, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(response.Body)
				if err != nil || string(body) != http.StatusText(response.StatusCode) {
					t.Errorf("the body is %q, %v", body, err)
				}
				_ = response.Body.Close()
				took = time.Since(began)
				time.Sleep(10 * s) // until the deadlines of the table are over
			}, c.refusal, say(200))
			if len(got.at) != 1 || took != 0 {
				t.Errorf("%d requests in %v", len(got.at), took)
			}
		})
	}
}

func TestRepeatsBodies(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"PUT":                       func(r *http.Request) { r.Method = "PUT" },
		"DELETE":                    func(r *http.Request) { r.Method = "DELETE" },
		"POST with a key":           func(r *http.Request) { r.Header.Set("Idempotency-Key", "1") },
		"POST with a key to itself": func(r *http.Request) { r.Header["X-Idempotency-Key"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			var tr Transport
			got := run(t, &tr, func(c *http.Client) {
				r, _ := http.NewRequest("POST", "http://api.test/", strings.NewReader("everything"))
				change(r)
				response, err := c.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_ = response.Body.Close()
			}, say(429, "Retry-After: 1"), say(429, "Retry-After: 2"), say(200))
			if want := []string{"everything", "everything", "everything"}; !slices.Equal(got.body, want) {
				t.Errorf("bodies %q", got.body)
			}
			sameTimes(t, got.at, 0, s, 3*s)
		})
	}
}

// Where nothing is promised, the waits double, and there are four.
func TestBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &script{steps: []http.HandlerFunc{say(429)}, start: time.Now()}
		tr := &Transport{Base: serve(t, sc).transport(t)}
		tr.pacer.Random = func(d time.Duration) time.Duration { return d - 1 }
		if status := get(t, &http.Client{Transport: tr}, "/"); status != 429 {
			t.Errorf("status %d", status)
		}
		for i := range sc.at {
			sc.at[i] = sc.at[i].Round(time.Millisecond)
		}
		sameTimes(t, sc.at, 0, s, 3*s, 7*s, 15*s)
	})
}

func TestWaitEndsWithContext(t *testing.T) {
	for name, fields := range map[string][]string{
		"after a refusal":  {"429", "Retry-After: 30"},
		"before a request": {"200", `RateLimit: "a";r=0;t=30`},
	} {
		t.Run(name, func(t *testing.T) {
			status := 200
			if fields[0] == "429" {
				status = 429
			}
			got := run(t, &Transport{}, func(c *http.Client) {
				if status == 200 {
					get(t, c, "/")
				}
				ctx, cancel := context.WithCancelCause(context.Background())
				left := errors.New("left")
				time.AfterFunc(7*s, func() { cancel(left) })
				body := &closing{Reader: bytes.NewReader(nil)}
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://api.test/", body)
				r.GetBody = func() (io.ReadCloser, error) { return body, nil }
				began := time.Now()
				if _, err := c.Do(r); !errors.Is(err, left) || time.Since(began) != 7*s {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if !body.closed {
					t.Error("the body was not closed")
				}
			}, say(status, fields[1:]...))
			if len(got.at) != 1 {
				t.Errorf("%d requests", len(got.at))
			}
		})
	}
}

// What cannot wait long enough is sent at once, and the server says what it says.
func TestSentWhereWaitingIsNoUse(t *testing.T) {
	for name, c := range map[string]struct {
		maxWait, timeout time.Duration
	}{
		"the deadline is nearer": {time.Hour, 5 * s},
		"longer than MaxWait":    {29 * s, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, &Transport{MaxWait: c.maxWait}, func(client *http.Client) {
				get(t, client, "/")
				client.Timeout = c.timeout
				if status := get(t, client, "/"); status != 429 {
					t.Errorf("status %d", status)
				}
			}, say(200, `RateLimit: "a";r=0;t=30`), say(429, "Retry-After: 30"))
			sameTimes(t, got.at, 0, 0)
		})
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// One path's refusal holds up no other, nor one key's those of another.
func TestOnlyWhatIsLimitedWaits(t *testing.T) {
	refuse := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("RateLimit", `"all";r=9;t=1`)
		if r.URL.Path == "/login" {
			w.Header().Set("RateLimit", `"login";r=0;t=50, "all";r=9;t=1`)
		}
		if strings.HasPrefix(r.URL.Path, "/search/") {
			w.Header().Set("RateLimit", `"search";r=0;t=50, "all";r=9;t=1`)
		}
		if r.Header.Get("Authorization") == "used up" {
			w.Header().Set("RateLimit", `"all";r=0;t=50`)
		}
		say(200)(w, r)
	}
	run(t, &Transport{}, func(c *http.Client) {
		ask := func(path, key string, want time.Duration) {
			r, _ := http.NewRequest("GET", "http://api.test"+path, nil)
			r.Header.Set("Authorization", key)
			began := time.Now()
			response, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if waited := time.Since(began); waited != want {
				t.Errorf("%s of %q waited %v, not %v", path, key, waited, want)
			}
		}
		ask("/login", "mine", 0)
		ask("/orders", "mine", 0)
		ask("/search/a", "mine", 0)
		ask("/search/b", "mine", 0)
		ask("/orders/1", "mine", 0)
		ask("/login", "mine", 50*s)
		ask("/a", "used up", 0)
		ask("/b", "used up", 0)
		ask("/c", "used up", 50*s) // every answer has told of it
		ask("/orders", "mine", 0)
		ask("/search/a", "other", 0)
		ask("/search/b", "other", 0)
		ask("/orders", "other", 50*s) // every answer so far
		ask("/orders/1", "other", 0)  // no longer
	}, refuse)
}

// A whole tenant waits, whatever the path.
func TestPartition(t *testing.T) {
	tr := &Transport{Partition: func(r *http.Request) string { return r.Header.Get("Tenant") }}
	got := run(t, tr, func(c *http.Client) {
		get(t, c, "/a")
		get(t, c, "/b")
		r, _ := http.NewRequest("GET", "http://api.test/c", nil)
		r.Header.Set("Tenant", "other")
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}, say(200, `RateLimit: "a";r=0;t=12`))
	sameTimes(t, got.at, 0, 12*s, 12*s)
}

// What is refused has its body read, and its connection used again.
func TestConnectionIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sc := &script{steps: []http.HandlerFunc{say(429, "Retry-After: 1"), say(429, "Retry-After: 1"), say(200)}}
		p := serve(t, sc)
		get(t, &http.Client{Transport: &Transport{Base: p.transport(t)}}, "/")
		if n := p.dials.Load(); n != 1 || len(sc.at) != 3 {
			t.Errorf("%d connections for %d requests", n, len(sc.at))
		}
	})
}

// A refusal whose body does not come holds nobody up for long.
func TestBodyThatDoesNotCome(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "2")
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(429)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	got := run(t, &Transport{}, func(c *http.Client) { get(t, c, "/") }, hang, say(200))
	sameTimes(t, got.at, 0, 2*s)
}
