package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// pipes counts the connections that are made.
type pipes struct {
	*testkit.Pipes
	dials atomic.Int32
}

// serve serves h until the test ends. In a bubble of synctest, all goroutines must have ended by then.
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

// script responds to each request with the next of its steps, and to all later requests with the last one. It records
// the times and the bodies of the requests.
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

// respond returns a handler that responds with a status and fields such as "Retry-After: 17".
func respond(status int, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, f := range fields {
			name, value, _ := strings.Cut(f, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, http.StatusText(status))
	}
}

// run calls f with a client of a server with the given steps, in virtual time and without jitter. It returns the
// server's script, with the requests that arrived.
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
		t.Errorf("the requests came after %v, want %v", got, want)
	}
}

const s = time.Second

// For each denial in testdata/refusals.txt, the Transport sends the request again, or returns the denial to the
// program.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/refusals.txt") {
		t.Run(c.Name, func(t *testing.T) {
			var settings Transport
			deadline := time.Hour
			for line := range strings.Lines(c.Setup) {
				switch name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name {
				case "max-wait":
					settings.MaxWait, _ = time.ParseDuration(value)
				case "deadline":
					deadline, _ = time.ParseDuration(value)
				case "max-retries":
					settings.MaxRetries, _ = strconv.Atoi(value)
				case "", "#":
				default:
					t.Fatalf("unknown setting %q", name)
				}
			}
			c.Play(t, func(step string) (outcome string) {
				tr := &Transport{MaxWait: settings.MaxWait, MaxRetries: settings.MaxRetries}
				r, first := refused(t, step)
				got := run(t, tr, func(c *http.Client) { outcome = send(t, c, r, deadline) }, first, respond(200))
				if again := strings.HasPrefix(outcome, "200"); again != (len(got.at) == 2) {
					t.Errorf("%d requests reached the server", len(got.at))
				}
				for _, body := range got.body {
					if want := "everything"; r.Method != "GET" && body != want {
						t.Errorf("a body is %q, want %q", body, want)
					}
				}
				return outcome
			})
		})
	}
}

// refused parses a step. It returns the request and the handler of its first response.
func refused(t *testing.T, step string) (*http.Request, http.HandlerFunc) {
	t.Helper()
	lines := strings.Split(step, "\n")
	status, err := strconv.Atoi(lines[0])
	if err == nil {
		r, _ := http.NewRequest("GET", "http://api.test/", nil)
		return r, respond(status, lines[1:]...)
	}
	method, key, _ := strings.Cut(lines[0], " with ")
	r, _ := http.NewRequest(method, "http://api.test/", strings.NewReader("everything"))
	switch {
	case method == "stream":
		r.Method, r.GetBody = "PUT", nil
	case key == "a key":
		r.Header.Set("Idempotency-Key", "1")
	case key != "": // the field exists, but has no value
		r.Header[key] = nil
	}
	if status, err = strconv.Atoi(lines[1]); err != nil {
		t.Fatal(err)
	}
	return r, respond(status, lines[2:]...)
}

// send returns the status that the program gets, and the time until then.
func send(t *testing.T, c *http.Client, r *http.Request, deadline time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	began := time.Now()
	response, err := c.Do(r.WithContext(ctx))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != http.StatusText(response.StatusCode) {
		t.Errorf("the body is %q, %v", body, err)
	}
	return fmt.Sprintf("%d after %v", response.StatusCode, time.Since(began))
}

// If a denial has no Retry-After, there are four retries, and the waits double.
func TestBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sc := &script{steps: []http.HandlerFunc{respond(429)}, start: time.Now()}
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
	t.Parallel()
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
			}, respond(status, fields[1:]...))
			if len(got.at) != 1 {
				t.Errorf("%d requests", len(got.at))
			}
		})
	}
}

// A request that cannot wait long enough is sent at once, and the program gets the response of the server.
func TestSentWhereWaitingIsNoUse(t *testing.T) {
	t.Parallel()
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
			}, respond(200, `RateLimit: "a";r=0;t=30`), respond(429, "Retry-After: 30"))
			sameTimes(t, got.at, 0, 0)
		})
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// A limit that is used up delays requests with the same path and key, or with all paths if all responses to the key
// report the limit. It does not delay other keys.
func TestOnlyWhatIsLimitedWaits(t *testing.T) {
	t.Parallel()
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
		respond(200)(w, r)
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
				t.Errorf("%s of %q waited %v, want %v", path, key, waited, want)
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
		ask("/c", "used up", 50*s) // all responses to this key have reported the limit
		ask("/orders", "mine", 0)
		ask("/search/a", "other", 0)
		ask("/search/b", "other", 0)
		ask("/orders", "other", 50*s) // all responses so far have reported the limit
		ask("/orders/1", "other", 0)  // one response has not reported it
	}, refuse)
}

// With Partition, all requests of a tenant wait, whatever the path.
func TestPartition(t *testing.T) {
	t.Parallel()
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
	}, respond(200, `RateLimit: "a";r=0;t=12`))
	sameTimes(t, got.at, 0, 12*s, 12*s)
}

// The body of a denial is read, so that its connection can be reused.
func TestConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sc := &script{steps: []http.HandlerFunc{respond(429, "Retry-After: 1"), respond(429, "Retry-After: 1"), respond(200)}}
		p := serve(t, sc)
		get(t, &http.Client{Transport: &Transport{Base: p.transport(t)}}, "/")
		if n := p.dials.Load(); n != 1 || len(sc.at) != 3 {
			t.Errorf("%d connections for %d requests", n, len(sc.at))
		}
	})
}

// If the body of a denial does not arrive, the request is nevertheless sent again in time.
func TestBodyThatDoesNotCome(t *testing.T) {
	t.Parallel()
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "2")
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(429)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	got := run(t, &Transport{}, func(c *http.Client) { get(t, c, "/") }, hang, respond(200))
	sameTimes(t, got.at, 0, 2*s)
}

// If a thousand programs are denied at once, their retries are spread evenly over time, and none is early. The test
// computes the statistic of Kolmogorov and Smirnov: for a thousand evenly distributed times, it is above 3.5 once in
// 10^10 runs.
func TestThousandDoNotComeBackTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal     http.HandlerFunc
		first, last time.Duration
	}{
		"Retry-After of a second":   {respond(429, "Retry-After: 1"), 1 * s, 2 * s},
		"Retry-After of 20 seconds": {respond(429, "Retry-After: 20"), 20 * s, 30 * s},
		"no Retry-After":            {respond(429), 0, s},
	} {
		t.Run(name, func(t *testing.T) {
			const clients = 1000
			var mu sync.Mutex
			var times []time.Duration
			var asked atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if asked.Add(1) <= clients {
						c.refusal(w, r)
						return
					}
					mu.Lock()
					times = append(times, time.Since(start))
					mu.Unlock()
				})).transport(t)
				var all sync.WaitGroup
				for range clients {
					all.Go(func() { get(t, &http.Client{Transport: &Transport{Base: base}}, "/") })
				}
				all.Wait()
			})
			slices.Sort(times)
			if len(times) != clients || times[0] < c.first || times[clients-1] > c.last {
				t.Fatalf("%d retries, from %v to %v", len(times), times[0], times[len(times)-1])
			}
			distance := 0.0
			for i, at := range times {
				even := float64(at-c.first) / float64(c.last-c.first)
				distance = max(distance, math.Abs(even-float64(i)/clients), math.Abs(even-float64(i+1)/clients))
			}
			if d := distance * math.Sqrt(clients); d > 3.5 {
				t.Errorf("the retries are not spread evenly: the distance is %.2f", d)
			}
		})
	}
}

// A server that denies everything gets retries for a tenth of the requests, and at most fifty more.
func TestBudget(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]http.HandlerFunc{"429": respond(429), "503": respond(503, "Retry-After: 1")} {
		t.Run(name, func(t *testing.T) {
			const programs, each = 20, 100
			var asked atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					refusal(w, r)
				})).transport(t)
				c := &http.Client{Transport: &Transport{Base: base}}
				var all sync.WaitGroup
				for i := range programs {
					all.Go(func() {
						for j := range each {
							get(t, c, fmt.Sprintf("/%d/%d", i, j))
						}
					})
				}
				all.Wait()
			})
			const requests = programs * each
			if n := asked.Load(); n < requests+requests/10 || n > requests+requests/10+50 {
				t.Errorf("%d requests reached the server, for %d requests of the programs", n, requests)
			}
		})
	}
}

// Forty callers share a key, behind each kind of limit and each dialect of rate-limit fields: all requests are allowed
// at the pace of the limit, and are denied only before the client knows the limit. If responses have only Retry-After,
// the client learns the limit from denials, so some requests are denied.
func TestBehindSluice(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog} {
		for name, config := range map[string]httplimit.Config{
			"draft 11": {},
			"draft 7":  {Dialect: answer.Draft7, XFields: answer.NoXFields},
			"draft 3":  {Dialect: answer.Draft3, XFields: answer.NoXFields},
			"X, Unix":  {Dialect: answer.NoRateLimit},
			"X, delta": {Dialect: answer.NoRateLimit, XFields: answer.XDelta},
			"nothing":  {Dialect: answer.NoRateLimit, XFields: answer.NoXFields},
		} {
			t.Run(fmt.Sprint(algorithm, "/", name), func(t *testing.T) {
				limit := sluice.Limit{Algorithm: algorithm, Count: 20, Period: time.Second}
				got := askTogether(t, config, limit, 40, 10)
				t.Logf("%d allowed, %d denied, in %v", got.passed, got.refused, got.took)
				switch {
				case name == "nothing":
					if got.passed < 320 || got.refused > 160 || got.took > time.Minute {
						t.Error("want at least 320 allowed and at most 160 denied, within a minute")
					}
				case got.passed != 400 || got.refused < 20 || got.refused > 30 || got.took < 19*s || got.took > 45*s:
					t.Error("want 400 allowed in 19 to 45 s, and 20 to 30 denied: 20 of the first 40, and hardly any others")
				}
			})
		}
	}
}

// together has the results of the requests of askTogether.
type together struct {
	passed, refused int64
	took            time.Duration
}

// askTogether runs callers that share a client. Each sends the given number of requests, one after another.
func askTogether(t *testing.T, config httplimit.Config, limit sluice.Limit, callers, each int) (got together) {
	var refused, passed atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
		if err != nil {
			t.Fatal(err)
		}
		door := config.Limit(limiter, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c := &http.Client{Transport: &Transport{Base: distant{serve(t, door).transport(t), &refused}}}
		start := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					if get(t, c, "/") == http.StatusOK {
						passed.Add(1)
					}
				}
			})
		}
		all.Wait()
		got.took = time.Since(start)
	})
	got.passed, got.refused = passed.Load(), refused.Load()
	return got
}

// distant is the transport to a server 20 ms away. It counts denials.
type distant struct {
	http.RoundTripper
	refused *atomic.Int64
}

func (d distant) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	response, err := d.RoundTripper.RoundTrip(r)
	time.Sleep(20 * time.Millisecond)
	if err == nil && response.StatusCode == http.StatusTooManyRequests {
		d.refused.Add(1)
	}
	return response, err
}
