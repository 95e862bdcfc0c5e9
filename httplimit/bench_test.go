package httplimit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
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

// sink is a ResponseWriter that costs little, so that it is the door that is measured.
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

// BenchmarkMiddleware is a whole call without a network. What a door costs is the
// difference to bare.
func BenchmarkMiddleware(b *testing.B) {
	limit := func(text string) http.Handler {
		return Limit(mustLimiter(b, memory.New(), text, sluice.TokenBucket), nil)(bare)
	}
	full := limit("1/day")
	serveOnce(full, benchRequest())
	cases := []struct {
		name   string
		h      http.Handler
		status int
		fields int
	}{
		{"bare", bare, 200, 1},
		{"limit/allowed", limit("100000000/second"), 200, 6},
		{"limit/refused", full, 429, 8},
		{"policy/allowed", Policy(mustEngine(b, memory.New(), benchPolicy))(bare), 200, 6},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			r, other := benchRequest(), 0
			for b.Loop() {
				if w := serveOnce(c.h, r); w.status != c.status || len(w.header) != c.fields {
					other++
				}
			}
			if other > 0 {
				b.Fatalf("%d of %d calls were not what this measures", other, b.N)
			}
		})
	}
}

// dearest are heads that make much work for a door, by their size.
var dearest = map[string]func(h http.Header, size int){
	"Accept of commas":     func(h http.Header, n int) { h["Accept"] = []string{strings.Repeat(",", n)} },
	"Accept of ranges":     func(h http.Header, n int) { h["Accept"] = []string{strings.Repeat("text/*,", n/7)} },
	"Accept of parameters": func(h http.Header, n int) { h["Accept"] = []string{"*/*" + strings.Repeat(";", n)} },
	"Accept of weights":    func(h http.Header, n int) { h["Accept"] = []string{"*/*" + strings.Repeat(";q", n/2)} },
	"Accept of blanks": func(h http.Header, n int) {
		h["Accept"] = []string{strings.Repeat(" ", n/2) + "*/*" + strings.Repeat(" ", n/2)}
	},
	"Accept of lines":                        func(h http.Header, n int) { h["Accept"] = slices.Repeat([]string{"*/*"}, n/len("Accept:*/*\r\n")) },
	"Connection of names, as many as may be": func(h http.Header, n int) { h["Connection"] = []string{strings.Repeat("a,", min(n, 1000)/2)} },
	"Connection of few": func(h http.Header, n int) {
		h["Connection"] = []string{strings.Repeat(strings.Repeat("a", n/100)+",", 99)}
	},
	"Connection of one":   func(h http.Header, n int) { h["Connection"] = []string{strings.Repeat("a", n)} },
	"Connection of lines": func(h http.Header, n int) { h["Connection"] = slices.Repeat([]string{"a"}, n/len("Connection:a\r\n")) },
	"Origin": func(h http.Header, n int) {
		h["Origin"] = []string{"https://" + strings.Repeat("a", n) + ".example.com"}
	},
	"X-Forwarded-For":        func(h http.Header, n int) { h["X-Forwarded-For"] = []string{strings.Repeat("192.0.2.1,", n/10)} },
	"X-Forwarded-For, blank": func(h http.Header, n int) { h["X-Forwarded-For"] = []string{strings.Repeat(" ", n)} },
	"Forwarded of escapes":   func(h http.Header, n int) { h["Forwarded"] = []string{strings.Repeat(`\"`, n/2)} },
	"many fields": func(h http.Header, n int) {
		for i := range n / 10 {
			h[fmt.Sprintf("X-%05d", i)] = []string{""}
		}
	},
}

// BenchmarkDearest refuses the dearest heads, as large as the gateway lets them be. What a
// request costs by its path, query, body and so on is for package policy to measure.
func BenchmarkDearest(b *testing.B) {
	run := func(name string, head func(h http.Header)) {
		b.Run(name, func(b *testing.B) {
			header := ""
			if strings.Contains(name, "/Forwarded") {
				header = "Forwarded"
			}
			h := Config{ForwardedHeader: header}.Policy(mustEngine(b, memory.New(), `
version: 1
trusted_proxies: [192.0.2.0/24]
cors: {origins: ["https://*.example.com"]}
rules: [{name: a, limit: 1/day}]
`))(bare)
			serveOnce(h, benchRequest())
			r, other := benchRequest(), 0
			head(r.Header)
			b.ReportAllocs()
			for b.Loop() {
				if w := serveOnce(h, r); w.status != 429 && w.status != 400 {
					other++
				}
			}
			if other > 0 {
				b.Fatalf("%d of %d calls were not refused", other, b.N)
			}
		})
	}
	run("plain", func(http.Header) {})
	for _, size := range []int{1 << 10, 64 << 10} {
		for name, head := range dearest {
			run(fmt.Sprintf("%dK/%s", size>>10, name), func(h http.Header) { head(h, size) })
		}
	}
}

func benchRequest() *http.Request {
	r := httptest.NewRequest("GET", "/things", nil)
	r.Header.Set("X-API-Key", "k")
	return r
}

// What a call needs is cut from memory that is allocated once for several calls: most
// calls allocate nothing over the bare handler.
func TestAllocations(t *testing.T) {
	r := benchRequest()
	// The fewest of many calls: the race detector makes pools forget now and then.
	fewest := func(h http.Handler) float64 {
		n := testing.AllocsPerRun(1, func() { serveOnce(h, r) })
		for range 100 {
			n = min(n, testing.AllocsPerRun(1, func() { serveOnce(h, r) }))
		}
		return n
	}
	base := fewest(bare)
	limiter := mustLimiter(t, memory.New(), "100000000/second", sluice.TokenBucket)
	if n := fewest(Limit(limiter, nil)(bare)) - base; n > 0 {
		t.Errorf("a limit: %v allocations", n)
	}
	if n := fewest(Policy(mustEngine(t, memory.New(), benchPolicy))(bare)) - base; n > 0 {
		t.Errorf("a policy: %v allocations", n)
	}
}
