package checkapi_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/checkapi"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const benchRules = `
version: 1
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

// constant reads the body and answers with as much as the API, and the same fields.
func constant(from *sink) http.Handler {
	body := append([]byte(nil), from.body...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		for name, v := range from.header {
			h[name] = v
		}
		_, _ = w.Write(body)
	})
}

var benchBodies = map[string]string{
	"request": `{"request": {"method": "POST", "host": "api.example.com", "path": "/v1/things?page=2", "client": "192.0.2.7", ` +
		`"headers": {"Accept": "application/json", "User-Agent": "python-requests/2.32", "X-API-Key": "k-42"}}}`,
	"rule": `{"rule": "per-key", "key": {"header:X-API-Key": "k-42"}, "cost": 1}`,
}

type body struct{ strings.Reader }

func (*body) Close() error { return nil }

// callWhile calls a handler again and again, and returns what it has said last.
func callWhile(more func() bool, h http.Handler, text string) *sink {
	w := &sink{header: http.Header{}}
	r := httptest.NewRequest("POST", "/v1/check", nil)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(text))
	in := &body{}
	for more() {
		in.Reset(text)
		r.Body = in
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	return w
}

// BenchmarkCheck is a call without a network. What the API costs beside net/http is the difference
// to a handler that answers a constant; BenchmarkServer has the ratio of whole calls.
func BenchmarkCheck(b *testing.B) {
	h := checkapi.Handler(checkapi.Config{Engine: policy.NewEngine(memory.New(), compile(b, benchRules))})
	for name, text := range benchBodies {
		w := &sink{}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			if w = callWhile(b.Loop, h, text); !strings.HasPrefix(string(w.body), `{"allowed":true`) {
				b.Fatalf("%s", w.body)
			}
		})
		b.Run(name+"/constant", func(b *testing.B) {
			b.ReportAllocs()
			callWhile(b.Loop, constant(w), text)
		})
	}
}

// BenchmarkDecode is what reading a body costs, beside what encoding/json takes for it, which
// refuses less.
func BenchmarkDecode(b *testing.B) {
	text := benchBodies["request"]
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, ok := checkapi.Decode("/v1/check", text); !ok {
				b.Fatal("it is refused")
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v struct {
				Request *struct {
					Method, Host, Path, Client string
					Headers                    map[string]any
				}
				Cost int64
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
