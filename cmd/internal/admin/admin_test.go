package admin

import (
	"net/http/httptest"
	"testing"
)

func TestHandler(t *testing.T) {
	var h Health
	handler := Handler(&h)
	get := func(path string, status int, text string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != status || w.Body.String() != text {
			t.Errorf("GET %s: %d %q, want %d %q", path, w.Code, w.Body, status, text)
		}
	}
	get("/healthz", 200, "ok\n")
	get("/readyz", 503, "not ready\n")
	h.SetReady(true)
	get("/readyz", 200, "ready\n")
	h.SetReady(false)
	get("/readyz", 503, "not ready\n")
	get("/healthz", 200, "ok\n")
}
