package httplimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
)

var benchPolicy = `
version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 100000000/second}
  - {name: per-key, key: [header:X-API-Key], limit: 100000000/second}
  - {name: global, limit: 100000000/second}
`

var bare = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Type"] = []string{"text/plain"}
	w.Write([]byte("things\n"))
})

// sink is a cheap ResponseWriter, so that benchmarks measure the middleware.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header { return s.header }
func (s *sink) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
}
func (s *sink) Write(p []byte) (int, error) { s.WriteHeader(http.StatusOK); return len(p), nil }

func serveOnce(h http.Handler, r *http.Request) *sink {
	w := &sink{header: make(http.Header)}
	h.ServeHTTP(w, r)
	return w
}

func benchRequest() *http.Request {
	r := httptest.NewRequest("GET", "/things", nil)
	r.Header.Set("X-API-Key", "k")
	return r
}

// Most calls allocate nothing beyond the bare handler, because memory is allocated for several calls at once.
func TestAllocations(t *testing.T) {
	r := benchRequest()
	// The minimum of many calls, because with the race detector pools drop some items.
	fewest := func(h http.Handler) float64 {
		n := testing.AllocsPerRun(1, func() { serveOnce(h, r) })
		for range 100 {
			n = min(n, testing.AllocsPerRun(1, func() { serveOnce(h, r) }))
		}
		return n
	}
	base := fewest(bare)
	limiter := policytest.Limiter(t, memory.New(), "100000000/second")
	if n := fewest(Limit(limiter, nil)(bare)) - base; n > 0 {
		t.Errorf("a limit: %v allocations", n)
	}
	if n := fewest(Policy(policytest.Engine(t, benchPolicy))(bare)) - base; n > 0 {
		t.Errorf("a policy: %v allocations", n)
	}
}

// BenchmarkInFlight serves requests with a rate limit, alone and with a limit of requests in flight.
func BenchmarkInFlight(b *testing.B) {
	for _, c := range []struct{ name, rule string }{
		{"none", ""}, {"fixed", "  - {name: capacity, in_flight: 1000}\n"}, {"auto", "  - {name: capacity, in_flight: auto}\n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			h, r := Policy(policytest.Engine(b, benchPolicy+c.rule))(bare), benchRequest()
			b.ReportAllocs()
			for b.Loop() {
				serveOnce(h, r)
			}
		})
	}
}
