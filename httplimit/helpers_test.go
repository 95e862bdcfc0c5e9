package httplimit

import (
	"io"
	"net/http"
	"net/http/httptest"
)

const layers = `
version: 1
trusted_proxies: [192.0.2.0/24]
rules:
  - name: health
    match: [GET /health]
    exempt: true
  - name: per-address
    key: [client_ip]
    limit: 100/hour
    algorithm: sliding_window_counter
  - name: trial
    limit: 1/day
    shadow: true
  - name: per-key
    match: [/things]
    key: [header:X-API-Key]
    missing: refuse
    limit: 2/hour
  - name: login
    match: [POST /login]
    key: [client_ip, body:username]
    limit: 1/minute
    algorithm: sliding_window_log
    on_error: deny
`

var things = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	io.WriteString(w, "things\n")
})

// recorded calls a handler without a connection, so that it can run in a bubble of synctest.
func recorded(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
