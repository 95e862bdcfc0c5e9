package adminapi_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// TestBodyMemory is not parallel because it measures the allocations of the whole process.
func TestBodyMemory(t *testing.T) {
	const size = 1 << 20
	fill := func(piece, end string) string {
		n := size / (len(piece) + len(end))
		return strings.Repeat(piece, n) + "1" + strings.Repeat(end, n)
	}
	bodies := map[string]string{
		"names":         fill(`{"`+strings.Repeat("a", 340)+`":`, "}"),
		"short names":   fill(`{"a":`, "}"),
		"lists":         fill("[", "]"),
		"wide and deep": fill(`{"b":1,"`+strings.Repeat("a", 100)+`":[`, "]}"),
		"wide":          "[" + fill(`{},`, "") + "]",
		"open":          strings.Repeat("[", size),
	}
	api := prepare(t, nil).config.api()
	for name, body := range bodies {
		for _, path := range []string{"/v1/check", "/v1/explain", "/v1/subjects/reset"} {
			r := httptest.NewRequest("POST", path, strings.NewReader(body))
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			api.ServeHTTP(w, r)
			runtime.ReadMemStats(&after)
			if w.Code/100 != 4 || w.Code == http.StatusNotFound {
				t.Errorf("%s, %s: %d %s", name, path, w.Code, w.Body)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 32*size {
				t.Errorf("%s, %s: a body of %d bytes allocated %d bytes", name, path, len(body), n)
			}
		}
	}
}
