package adminapi_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/adminapi"
)

// TestBodyMemory is not parallel: it counts what the process allocates.
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
	api := adminapi.New(prepare(t, nil).config)
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
				t.Errorf("%s, %s: a body of %d bytes took %d", name, path, len(body), n)
			}
		}
	}
}

func TestBodyFieldTwice(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for body, pointer := range map[string]string{
		`{"url": "/", "Url": "/"}`:                            `"/Url"`,
		`{"url": "/", "headers": {"a/b": "1", "a/b": "2"}}`:   `"/headers/a~1b"`,
		`{"url": "/", "headers": {"": "1", "x": 1, "": "2"}}`: `"/headers/"`,
		`{"url": "/", "headers": [{"a": 1, "a": 2}]}`:         `"/headers/a"`,
	} {
		s.do("POST", "/v1/check", body).want(422).says("the field is there twice", `"pointer":`+pointer)
	}
	s.do("POST", "/v1/check", strings.Repeat("[", 101)+strings.Repeat("]", 101)).want(422).says("deeper than 100 levels")
}

// What no field can be is the caller's mistake, and makes no lines in the log.
func TestBodyUnreadable(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	for body, want := range map[string]string{
		`{"url": "/", "cost": 1e400}`:                            `"pointer":"/cost","detail":"it must be a whole number`,
		`{"url": "/", "cost": ` + strings.Repeat("9", 400) + `}`: `"pointer":"/cost","detail":"it must be a whole number`,
		`{"url": 1e400}`: `"pointer":"/url","detail":"it must be text`,
	} {
		s.do("POST", "/v1/check", body).want(422).says(want)
	}
	s.do("POST", "/v1/check", "{\"url\": \"/\xff\"}").want(400).says("it is not UTF-8")
}
