package python

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// odd has a rule for each path.
const odd = `version: 1
rules:
  - {name: plain, match: /plain, limit: 100/day}
  - {name: queue, match: /queue, limit: 1/second burst 5, algorithm: leaky_bucket}
  - {name: hold, match: /hold, in_flight: 1}
  - {name: priced, match: /priced, limit: 20/day, cost: {response_header: X-Cost, estimate: 1, max: 10}}
  - {name: header, match: /header, limit: 20/day, cost: {response_header: X-Cost, estimate: 1, max: 10}}
  - {name: drip, match: /drip, limit: 20/day, cost: {response_bytes: 1000}}
  - {name: ws, match: /ws, limit: 1/day}
`

// both runs a test with asyncio and with threads.
func both(t *testing.T, f func(t *testing.T, app func(env ...string) string)) {
	for _, c := range []struct{ module, server, target string }{
		{"starlette", "uvicorn", "odd_starlette:app"},
		{"waitress", "waitress", "odd_wsgi:app"},
	} {
		t.Run(c.module, func(t *testing.T) {
			t.Parallel()
			needs(t, c.module, c.server)
			f(t, func(env ...string) string { return app(t, c.server, c.target, env...) })
		})
	}
}

// A request in flight holds its permit until the response has ended.
func TestInFlight(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		_, url, held := hold(t, app)
		if got := do(t, "GET", url+"/hold", ""); got.status != 429 {
			t.Errorf("another request: %d %s", got.status, got.body)
		}
		letGo(url)
		if got := <-held; got.body != "held" {
			t.Errorf("%d %s", got.status, got.body)
		}
		if got := do(t, "GET", url+"/hold", ""); got.status != 200 {
			t.Errorf("after the request has ended: %d %s", got.status, got.body)
		}
	})
}

// hold sends a request to /hold, and waits until it has its permit. The response comes after [letGo].
func hold(t *testing.T, app func(...string) string) (g *testkit.Gateway, url string, held <-chan answered) {
	t.Helper()
	g = service(t, odd)
	url = app("SLUICE_URL=http://" + g.Check)
	t.Cleanup(func() { letGo(url) })
	response := make(chan answered, 1)
	go func() { response <- do(t, "GET", url+"/hold", "") }()
	testkit.Await(t, "the request has its permit", func() bool { return strings.Contains(peek(t, g), `"allowed":false`) })
	return g, url, response
}

// letGo lets the requests to /hold end.
func letGo(url string) {
	if resp, err := http.Get(url + "/go"); err == nil {
		resp.Body.Close()
	}
}

// peek returns the service's answer about another request in flight.
func peek(t *testing.T, g *testkit.Gateway) string {
	t.Helper()
	return do(t, "POST", "http://"+g.Check+"/v1/check", `{"request":{"path":"/hold"},"peek":true}`, "Content-Type: application/json").body
}
