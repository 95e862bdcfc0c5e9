// Package admin has the health checks of a running Sluice, and the check of the Host field against DNS
// rebinding. Package server puts them on the admin address.
package admin

import (
	"io"
	"net/http"
	"sync/atomic"
)

// Health is the health of a process. In the zero value, the process is alive and not ready.
type Health struct {
	ready    atomic.Bool
	required func() bool
}

// Require sets a condition for being ready. Call it before the handler serves requests.
func (h *Health) Require(holds func() bool) { h.required = holds }

// SetReady sets whether the process is ready for new traffic.
func (h *Health) SetReady(ready bool) { h.ready.Store(ready) }

// Handler answers /healthz with 200 while the process runs. It answers /readyz with 200 while the process is ready,
// and with 503 otherwise.
func Handler(h *Health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if h.ready.Load() && (h.required == nil || h.required()) {
			answer(w, http.StatusOK, "ready\n")
		} else {
			answer(w, http.StatusServiceUnavailable, "not ready\n")
		}
	})
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
