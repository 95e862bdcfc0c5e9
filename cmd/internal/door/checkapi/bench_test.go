package checkapi_test

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkCheck is a call without a network.
func BenchmarkCheck(b *testing.B) {
	h := open(b, `
rules:
  - {name: per-address, key: [client_ip], limit: 100000000/second}
  - {name: per-key, key: ["header:X-API-Key"], limit: 100000000/second}
`)
	for name, text := range map[string]string{
		"request": `{"request": {"method": "POST", "host": "api.example.com", "path": "/v1/things?page=2", "client": "192.0.2.7", ` +
			`"headers": {"Accept": "application/json", "User-Agent": "python-requests/2.32", "X-API-Key": "k-42"}}}`,
		"rule": `{"rule": "per-key", "key": {"header:X-API-Key": "k-42"}, "cost": 1}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, newRequest("/v1/check", strings.NewReader(text))); !strings.HasPrefix(w.Body.String(), `{"allowed":true`) {
					b.Fatalf("%s", w.Body)
				}
			}
		})
	}
}
