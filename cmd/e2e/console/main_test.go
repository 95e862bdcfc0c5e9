// Package console compares the console of the real program under traffic, in a real Chromium, with the metrics and with
// the requests that were sent.
package console

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// page is a page of the dashboard.
type page struct {
	*window
	program *program
}

// open opens the dashboard of a program in its own window. If the program is nil, the window is empty.
func open(t *testing.T, p *program, l look) *page {
	t.Helper()
	site := ""
	if p != nil {
		site = p.Admin
	}
	return &page{openWindow(t, site, l), p}
}

// js returns the value of an expression.
func js[T any](g *page, expression string) T { return evaluate[T](g.window, expression) }

func TestMain(m *testing.M) { runTests(m) }

// program is a gateway in front of the sample API.
type program struct {
	*testkit.Gateway
	tokens bool // the admin API requires the token of an admin
}

func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return &program{testkit.Start(t, append([]string{"--upstream", "sample"}, args...)...), slices.Contains(args, "--admin-tokens")}
}

// ask sends a request to the gateway, and returns the status.
func (p *program) ask(path string, fields ...string) int {
	p.Helper()
	return p.send("GET", path, "", fields...)
}

// send is like ask, with another method and a form.
func (p *program) send(method, path, form string, fields ...string) int {
	p.Helper()
	r, err := http.NewRequest(method, p.URL+path, strings.NewReader(form))
	if err != nil {
		p.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}
