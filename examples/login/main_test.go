package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

func TestLogin(t *testing.T) {
	h, err := handler(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	try := func(times int, address, name, password string, want int) {
		t.Helper()
		for range times {
			r := httptest.NewRequest("POST", "/login", strings.NewReader(url.Values{"username": {name}, "password": {password}}.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.RemoteAddr = address + ":1234"
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s as %s with %q: %d, want %d", address, name, password, w.Code, want)
			}
		}
	}
	try(30, "192.0.2.1", "alice", "correct horse", http.StatusOK) // successful logins are never denied
	try(5, "192.0.2.66", "alice", "guess", http.StatusUnauthorized)
	try(1, "192.0.2.66", "Alice ", "correct horse", http.StatusTooManyRequests) // a name that databases treat as the same
	try(1, "192.0.2.1", "alice", "correct horse", http.StatusOK)
	for i := range 19 { // a hundred failures from different addresses
		try(1, "192.0.2.1", "alice", "correct horse", http.StatusOK)
		try(5, fmt.Sprintf("198.51.100.%d", i), "alice", "guess", http.StatusUnauthorized)
	}
	try(1, "192.0.2.1", "alice", "correct horse", http.StatusTooManyRequests)
	for _, name := range []string{"bob", "carol", "dave"} {
		try(5, "192.0.2.66", name, "guess", http.StatusUnauthorized)
	}
	try(1, "192.0.2.66", "erin", "correct horse", http.StatusTooManyRequests) // after twenty failures from one address
}
