package checkapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const benchRules = `
rules:
  - {name: per-address, key: [client_ip], limit: 100000000/second}
  - {name: per-key, key: ["header:X-API-Key"], limit: 100000000/second}
`

// sink is a ResponseWriter that costs little, so that it is the handler that is measured.
type sink struct {
	header http.Header
	status int
	body   []byte
}

func (s *sink) Header() http.Header    { return s.header }
func (s *sink) WriteHeader(status int) { s.status = status }
func (s *sink) Write(p []byte) (int, error) {
	s.body = append(s.body[:0], p...)
	return len(p), nil
}

var benchBodies = map[string]string{
	"request": `{"request": {"method": "POST", "host": "api.example.com", "path": "/v1/things?page=2", "client": "192.0.2.7", ` +
		`"headers": {"Accept": "application/json", "User-Agent": "python-requests/2.32", "X-API-Key": "k-42"}}}`,
	"rule": `{"rule": "per-key", "key": {"header:X-API-Key": "k-42"}, "cost": 1}`,
}

type body struct{ strings.Reader }

func (*body) Close() error { return nil }

// BenchmarkCheck is a call without a network.
func BenchmarkCheck(b *testing.B) {
	h := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), compile(b, benchRules))})
	for name, text := range benchBodies {
		b.Run(name, func(b *testing.B) {
			w, in := &sink{header: http.Header{}}, &body{}
			r := httptest.NewRequest("POST", "/v1/check", nil)
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = int64(len(text))
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(text)
				r.Body = in
				clear(w.header)
				h.ServeHTTP(w, r)
			}
			if !strings.HasPrefix(string(w.body), `{"allowed":true`) {
				b.Fatalf("%s", w.body)
			}
		})
	}
}
