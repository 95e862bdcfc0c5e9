package control_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/httplimit"
)

// An explanation predicts the response that the gateway then sends.
func TestExplainForetells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // between the explanation and the request, no time passes
		config := over(t, `
version: 1
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: per-address, key: [client_ip], limit: 200/day}
  - {name: per-key, key: [api_key], missing: skip, limit: 100/day burst 20}
  - {name: login, match: POST /login, key: [client_ip], limits: [5/day, 20/7d], algorithm: fixed_window}
`)
		looks := control.New(config)
		upstream := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		gateway := httplimit.Policy(config.Engine)(upstream)
		try := func(method, path string) {
			t.Helper()
			got, err := looks.Explain(t.Context(), control.Caller{Name: "x", Role: source.Viewer}, control.CheckRequest{
				Method: method, URL: path + "?a=b", From: "192.0.2.7", Headers: map[string]string{"X-API-Key": "k-1", "Accept": "text/plain"},
			})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(method, path+"?a=b", nil)
			r.RemoteAddr = "192.0.2.7:1"
			r.Header.Set("X-API-Key", "k-1")
			r.Header.Set("Accept", "text/plain")
			w := httptest.NewRecorder()
			gateway.ServeHTTP(w, r)
			if passed := w.Code == http.StatusNoContent; passed != got.Allowed || !passed && (got.Response.Status != w.Code || got.Response.Body != w.Body.String()) {
				t.Fatalf("%s: %d %q, predicted: %v %+v", path, w.Code, w.Body, got.Allowed, got.Response)
			}
			if !maps.EqualFunc(w.Header(), got.Response.Header, slices.Equal) {
				t.Fatalf("%s:\n%v, predicted:\n%v", path, w.Header(), got.Response.Header)
			}
		}
		for range 30 { // more than the burst of 20 for the key and the five logins a day
			try("GET", "/")
			try("POST", "/login")
			try("GET", "/health")
			time.Sleep(100 * time.Millisecond)
		}
	})
}
