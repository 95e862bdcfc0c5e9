package sample

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	server := httptest.NewServer(Handler())
	defer server.Close()
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
			r, err := http.NewRequestWithContext(t.Context(), test.method, server.URL+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", test.kind)
			resp, err := server.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(body)); resp.StatusCode != test.status || got != test.want {
				t.Errorf("%d %s, want %d %s", resp.StatusCode, got, test.status, test.want)
			}
		})
	}
}
