package migrate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/internal/redistest"
)

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// passed returns how many of eight requests are allowed.
func passed(t *testing.T, make func(http.Handler) (http.Handler, error)) (n int) {
	t.Helper()
	h, err := make(ok)
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		switch w.Code {
		case http.StatusOK:
			n++
		case http.StatusTooManyRequests:
		default:
			t.Errorf("status %d", w.Code)
		}
	}
	return n
}

// With Sluice, exactly five of eight requests pass. With the other limiters, at least five pass, because a window may
// end during the test; Sluice runs in a bubble, and its clock stands still.
func TestHandlers(t *testing.T) {
	for name, pair := range map[string][2]func(http.Handler) (http.Handler, error){
		"x/time/rate": {fromTimeRate, insteadOfTimeRate},
		"httprate":    {fromHTTPRate, insteadOfHTTPRate},
		"throttled":   {fromThrottled, insteadOfThrottled},
		"ulule":       {fromUlule, insteadOfUlule},
	} {
		t.Run(name, func(t *testing.T) {
			if n := passed(t, pair[0]); n < 5 {
				t.Errorf("before, %d pass", n)
			}
			synctest.Test(t, func(t *testing.T) {
				if n := passed(t, pair[1]); n != 5 {
					t.Errorf("after, %d pass", n)
				}
			})
		})
	}
}

func TestRedis(t *testing.T) {
	server := redistest.Start(t)
	for name, connect := range map[string]func(context.Context, string) (func(string) (bool, error), func() error, error){
		"before": fromRedisRate, "after": insteadOfRedisRate,
	} {
		allow, end, err := connect(t.Context(), server.Addr)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range 8 {
			fits, err := allow("user:1")
			if err != nil {
				t.Fatal(err)
			}
			if fits {
				n++
			}
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if n != 5 {
			t.Errorf("%s, %d pass", name, n)
		}
	}
}

// The code in docs/migrating.md is in this package. Its indentation may differ.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/migrating.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("migrate.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 10 {
		t.Errorf("the page has %d blocks of code, want five pairs", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(flat(string(source)), flat(b[1])) {
			t.Errorf("migrate.go does not have\n%s", b[1])
		}
	}
}

var margin = regexp.MustCompile(`(?m)^\s+`)

func flat(code string) string { return margin.ReplaceAllString(code, "") }
