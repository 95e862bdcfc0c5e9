package sample

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	handler := Handler()
	const form, asJSON = "application/x-www-form-urlencoded", "application/json"
	for _, test := range []struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		{"GET", "/health", "", "", 200, `{"status":"ok"}`},
		{"GET", "/api/users", "", "", 200, `[{"id":1,"name":"alice"},{"id":2,"name":"bob"},{"id":3,"name":"carol"}]`},
		{"GET", "/api/search?q=BO", "", "", 200, `[{"id":2,"name":"bob"}]`},
		{"GET", "/api/search/carol", "", "", 200, `[{"id":3,"name":"carol"}]`},
		{"GET", "/api/search/nobody", "", "", 200, `[]`},
		{"POST", "/auth/login", form, "username=alice&password=sluice", 200, `{"token":"sample","user":"alice"}`},
		{"POST", "/auth/login", asJSON, `{"username":"alice","password":"sluice"}`, 200, `{"token":"sample","user":"alice"}`},
		{"POST", "/auth/login", form, "username=alice&password=guess", 401, `{"error":"wrong user name or password"}`},
		{"POST", "/auth/login", asJSON, `{"username":`, 400, `{"error":"send username and password as a form or as JSON"}`},
		{"POST", "/auth/login", form, "password=" + strings.Repeat("x", maxBody), 400, `{"error":"send username and password as a form or as JSON"}`},
		{"POST", "/auth/register", form, "username=dave", 201, `{"status":"registered","user":"dave"}`},
		{"POST", "/auth/reset-password", form, "username=dave", 202, `{"status":"mail sent","user":"dave"}`},
		{"GET", "/auth/login", "", "", 405, "Method Not Allowed"},
		{"GET", "/nothing", "", "", 404, "404 page not found"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body))
			r.Header.Set("Content-Type", test.kind)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if got := strings.TrimSpace(w.Body.String()); w.Code != test.status || got != test.want {
				t.Errorf("%d %s, want %d %s", w.Code, got, test.status, test.want)
			}
		})
	}
}
