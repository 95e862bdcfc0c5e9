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
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// inFront makes a handler that limits by the address of the connection.
type inFront func(count int, period time.Duration, next http.Handler) http.Handler

var doors = []contender{
	{"bare handler", floor, inFront(func(_ int, _ time.Duration, next http.Handler) http.Handler { return next })},
	{"sluice/httplimit, one limiter", ours, inFront(sluiceLimit)},
	{"sluice/httplimit, a policy of one rule", ours, inFront(sluicePolicy)},
	{"sethvargo/go-limiter", rival, inFront(sethvargoDoor)},
	{"throttled", rival, inFront(throttledDoor)},
	{"ulule/limiter", rival, inFront(ululeDoor)},
	{"go-chi/httprate", rival, inFront(chiDoor)},
	{"didip/tollbooth", rival, inFront(tollboothDoor)},
}

func sluiceLimit(count int, period time.Duration, next http.Handler) http.Handler {
	l, err := sluice.NewLimiter(memory.New(), "", limitOf(count, period))
	must(err)
	return httplimit.Limit(l, nil)(next)
}

func sluicePolicy(count int, period time.Duration, next http.Handler) http.Handler {
	p, err := policy.Parse("bench.yaml", fmt.Appendf(nil, "version: 1\nrules:\n  - name: per-address\n    key: [client_ip]\n    limit: %v\n", limitOf(count, period)))
	must(err)
	return httplimit.Policy(policy.NewEngine(memory.New(), p))(next)
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

// handling measures whole calls with a recorder, and that they were answered as they should.
func handling(count int, period time.Duration, status int) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		h := c.start.(inFront)(count, period, next)
		r := httptest.NewRequest("GET", "/api/users", nil)
		r.RemoteAddr = "203.0.113.9:40000"
		h.ServeHTTP(httptest.NewRecorder(), r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if c.role != floor {
			if w.Code != status {
				return nil, fmt.Errorf("answers %d, and should %d", w.Code, status)
			}
			if !hasFields(w.Header()) {
				return nil, fmt.Errorf("sends no fields: %v", w.Header())
			}
		}
		runtime.GC()
		cost := spend(1, budget, keysOf(1), one(1), func(string) bool {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code == http.StatusNoContent
		})
		return cost.sample(), nil
	}
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
	cols := []string{"ns", "CPU ns", "allocs", "refused"}
	return []work{
		{"middleware: allowed", "a whole call with a recorder; the limit is never reached", doors, handling(plenty, time.Second, 204), cols},
		{"middleware: refused", "a whole call with a recorder; 1 an hour", doors, handling(1, time.Hour, 429), cols},
	}
}
