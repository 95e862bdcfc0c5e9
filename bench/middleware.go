package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"
	"github.com/go-chi/httprate"
	sethvargohttp "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// inFront wraps a handler in a limit by the address of the connection.
type inFront func(count int, period time.Duration, next http.Handler) http.Handler

const onePolicy = "sluice/httplimit, a policy of one rule"

var doors = []contender{
	{"sluice/httplimit, one limiter", ours, inFront(sluiceLimit)},
	{"sluice/httplimit, one limiter, three fields", ours, inFront(sluiceThree)},
	{onePolicy, ours, sluicePolicy("")},
	{onePolicy + ", three fields", other, sluicePolicy("fields: x-ratelimit\n")},
	{"sethvargo/go-limiter", rival, inFront(sethvargoDoor)},
	{"throttled/throttled", rival, inFront(throttledDoor)},
	{"ulule/limiter", rival, inFront(ululeDoor)},
	{"go-chi/httprate", rival, inFront(chiDoor)},
	{"didip/tollbooth", rival, inFront(tollboothDoor)},
}

func sluiceLimit(count int, period time.Duration, next http.Handler) http.Handler {
	l, err := sluice.NewLimiter(memory.New(), "", limitOf(count, period))
	must(err)
	return httplimit.Limit(l, nil)(next)
}

// sluiceThree sends the same fields as the rivals.
func sluiceThree(count int, period time.Duration, next http.Handler) http.Handler {
	l, err := sluice.NewLimiter(memory.New(), "", limitOf(count, period))
	must(err)
	return httplimit.Config{Dialect: answer.NoRateLimit}.Limit(l, nil)(next)
}

// sluicePolicy limits by a policy that has a further setting.
func sluicePolicy(setting string) inFront {
	return func(count int, period time.Duration, next http.Handler) http.Handler {
		p, err := policyfile.Parse("bench.yaml", fmt.Appendf(nil, "version: 1\n%srules:\n  - name: per-address\n    key: [client_ip]\n    limit: %v\n", setting, limitOf(count, period)))
		must(err)
		return httplimit.Policy(policy.NewEngine(memory.New(), p))(next)
	}
}

func sethvargoDoor(count int, period time.Duration, next http.Handler) http.Handler {
	s, err := memorystore.New(&memorystore.Config{Tokens: uint64(count), Interval: period})
	must(err)
	m, err := sethvargohttp.NewMiddleware(s, sethvargohttp.IPKeyFunc())
	must(err)
	return m.Handle(next)
}

func throttledDoor(count int, period time.Duration, next http.Handler) http.Handler {
	s, err := memstore.NewCtx(0)
	must(err)
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerDuration(count, period), MaxBurst: count - 1})
	must(err)
	h := throttled.HTTPRateLimiterCtx{RateLimiter: l, VaryBy: &throttled.VaryBy{RemoteAddr: true}}
	return h.RateLimit(next)
}

func ululeDoor(count int, period time.Duration, next http.Handler) http.Handler {
	return stdlib.NewMiddleware(ulule.New(ululememory.NewStore(), ulule.Rate{Period: period, Limit: int64(count)})).Handler(next)
}

func chiDoor(count int, period time.Duration, next http.Handler) http.Handler {
	return httprate.LimitBy(count, period, func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	})(next)
}

func tollboothDoor(count int, period time.Duration, next http.Handler) http.Handler {
	l := tollbooth.NewLimiter(float64(count)/period.Seconds(), &limiter.ExpirableOptions{DefaultExpirationTTL: time.Hour})
	l.SetBurst(count).SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
	return tollbooth.HTTPMiddleware(l)(next)
}

// writer is a ResponseWriter that costs next to nothing. All contenders use it.
type writer struct {
	header http.Header
	status int
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(p), nil
}

func (w *writer) serve(h http.Handler, r *http.Request) (int, http.Header) {
	*w = writer{header: make(http.Header)}
	h.ServeHTTP(w, r)
	return w.status, w.header
}

// record serves with a recorder, which copies the fields when the status is written, like the server of net/http.
func record(h http.Handler, r *http.Request) (int, http.Header) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Header()
}

// served is the handler behind the limits. It sets a field, as nearly all handlers do, so that the first allocation
// of the map of fields does not count for the limit.
func served(w http.ResponseWriter, _ *http.Request) {
	w.Header()["Content-Type"] = []string{"text/plain"}
	w.WriteHeader(http.StatusOK)
}

// servedFour is a handler that sets four fields.
func servedFour(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h["Cache-Control"], h["Etag"], h["X-Request-Id"] = []string{"no-store"}, []string{`"a"`}, []string{"1"}
	served(w, r)
}

// handling measures the cost that a limit adds to a call of the bare handler, alternating between the two. It fails
// if an answer is not as expected.
func handling(count int, period time.Duration, status int, bare http.HandlerFunc, serve func(http.Handler, *http.Request) (int, http.Header)) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		h := c.start.(inFront)(count, period, bare)
		r := httptest.NewRequest("GET", "/api/users", nil)
		r.RemoteAddr = "203.0.113.9:40000"
		serve(h, r)
		if got, fields := serve(h, r); got != status || !hasFields(fields) {
			return nil, fmt.Errorf("the answer is %d with the fields %v, want %d with rate limit fields", got, fields, status)
		}
		s := addedTo(bare, h, func(h http.Handler) bool {
			got, _ := serve(h, r)
			return got == http.StatusOK
		})
		if refuses := status != http.StatusOK; refuses != (s["refused"] > 0.5) {
			return nil, fmt.Errorf("the fraction of denied calls is %v", s["refused"])
		}
		return s, nil
	}
}

// addedTo calls a handler h that wraps the handler bare, alternating with calls of bare. It returns the cost of a
// call of h, and the cost that h adds.
func addedTo(bare, h http.Handler, call func(http.Handler) (allowed bool)) sample {
	// A server has a heap, so it collects garbage now and then. Without this heap, this process would collect
	// garbage all the time.
	heap := make([]byte, 32<<20)
	defer runtime.KeepAlive(heap)
	const turns = 5
	var without, with cost
	for range turns {
		for _, t := range []struct {
			handler http.Handler
			total   *cost
		}{{bare, &without}, {h, &with}} {
			runtime.GC()
			t.total.add(spend(1, budget/2/turns, keysOf(1), one(1), func(string) bool { return call(t.handler) }))
		}
	}
	s, floor := with.sample(), without.sample()
	for _, column := range []string{"CPU ns", "allocs"} {
		s["added "+column] = s[column] - floor[column]
	}
	return s
}

func (c *cost) add(more cost) {
	c.ops += more.ops
	c.admitted += more.admitted
	c.wall += more.wall
	c.cpu += more.cpu
	c.mallocs += more.mallocs
}

func hasFields(h http.Header) bool {
	for name := range h {
		if strings.Contains(strings.ToLower(name), "ratelimit-") {
			return true
		}
	}
	return false
}

func middlewareWorks() []work {
	const about = "The cost that is added to the bare handler, by address of the client. Sluice sends RateLimit-Policy, RateLimit and three X-RateLimit fields, the others send three fields; "
	plain := func(h http.Handler, r *http.Request) (int, http.Header) { return new(writer).serve(h, r) }
	cols := []string{"added CPU ns", "CPU ns", "added allocs", "refused"}
	return []work{
		{"middleware: allowed", about + "the limit is never reached", doors, handling(plenty, time.Second, 200, served, plain), cols},
		{"middleware: refused", about + "1 an hour", doors, handling(1, time.Hour, 429, served, plain), cols},
		{"middleware: allowed, fields copied", about + "the fields are copied when the status is written, as a server does", doors, handling(plenty, time.Second, 200, served, record), cols},
		{"middleware: allowed, four fields of the handler's", about + "the limit is never reached, and the handler sets four fields instead of one", doors, handling(plenty, time.Second, 200, servedFour, plain), cols},
	}
}
