//go:build long

package python

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// The programs of docs/python.md work with the policies of that page.
func TestLongExamples(t *testing.T) {
	t.Parallel()
	const policy = `version: 1
rules:
  - {name: all, key: [client_ip], limit: 100/day}
  - {name: reports, attributes: {asked: by name}, key: ["attr:customer"], limit: 3/day}
  - {name: search, match: /search, limit: 100/day, cost: {response_header: X-Cost, estimate: 1, max: 10}}
`
	for _, c := range []struct {
		module, file string
		run          []string
		requests     string // method, path, status, remaining units
	}{
		{"fastapi", "fastapi_app.py", []string{"-m", "uvicorn", "fastapi_app:app", "--no-proxy-headers", "--port"}, "GET /api/data 200 99, GET /api/data 200 98"},
		{"fastapi", "costs_app.py", []string{"-m", "uvicorn", "costs_app:app", "--no-proxy-headers", "--port"}, "GET /search?q=ap 200 99, GET /search?q=ap 200 97"},
		{"flask", "flask_app.py", []string{"-m", "flask", "--app", "flask_app", "run", "--port"}, "POST /reports/a?pages=2 200 1, POST /reports/a?pages=2 429 1, POST /reports/a?pages=none 200 0, POST /reports/b?pages=-1 200 2, GET /health 200 -"},
		{"django", "django_app.py", []string{"django_app.py", "runserver", "--noreload"}, "GET /reports/a 200 2, GET /health 200 -, GET /no 404 98"},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			needs(t, c.module)
			url := runExample(t, service(t, policy).Check, c.file, c.run...)
			for line := range strings.SplitSeq(c.requests, ", ") {
				f := strings.Fields(line)
				got := do(t, f[0], url+f[1], "")
				if left := remaining(got); strconv.Itoa(got.status) != f[2] || left != strings.Trim(f[3], "-") {
					t.Errorf("%s: %d, %q remain\n%s", line, got.status, left, got.body)
				}
			}
		})
	}
}

// runExample runs a program of examples/clients/python with the service at an address, and returns its URL.
func runExample(t *testing.T, check, file string, args ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "examples", "clients", "python", file))
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(testkit.Port(t))
	c := python(t, append(args, port)...)
	c.Dir = filepath.Dir(testkit.File(t, file, strings.ReplaceAll(string(text), "localhost:8081", check)))
	testkit.Launch(t, c, "127.0.0.1:"+port)
	return "http://127.0.0.1:" + port
}
