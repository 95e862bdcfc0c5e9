//go:build long

package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// A queue outlives its store: waiting requests pass at their turn, and on_error decides new requests.
func TestLongChaosQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	text := `version: 1
rules:
  - {name: local, match: GET /api/users, limit: 5/second burst 10, algorithm: leaky_bucket, on_error: local}
  - {name: deny, match: GET /api/search, limit: 5/second burst 10, algorithm: leaky_bucket, on_error: deny}
`
	// On a busy machine, calls may take longer than the usual deadline.
	both := pair(t, text, server.URL(), "--store-timeout", "5s")
	client := newClient(t)
	waiting := make([]answer, 8)
	var callers sync.WaitGroup
	for i := range waiting {
		callers.Go(func() { waiting[i] = shot{both[i%2], shared, ""}.fire(client) })
	}
	testkit.Await(t, "all are in the queue", func() bool {
		store, standIn := byWhom(t, both)
		return store+standIn >= 8
	})
	server.Kill()
	refused := shot{both[0], closed, ""}.fire(client)
	if refused.status != http.StatusServiceUnavailable || refused.wrong != "" {
		t.Errorf("by on_error deny: %+v", refused)
	}
	late := shot{both[0], shared, ""}.fire(client)
	if late.status != http.StatusOK || !late.degraded {
		t.Errorf("by on_error local: %+v", late)
	}
	callers.Wait()
	var longest time.Duration
	for _, a := range waiting {
		longest = max(longest, a.took)
		if a.status != http.StatusOK || a.degraded {
			t.Errorf("a request that was in the queue: %+v", a)
		}
	}
	if longest < time.Second {
		t.Errorf("the last of 8 at 5 a second has waited %v", longest)
	}
}

// A gateway that starts without its store decides by on_error until the store is there, and then warns of unsafe
// settings. The URL of a single store is rejected for a node of a cluster.
func TestLongChaosStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	g := serve(t, "--policy", testkit.File(t, "policy.yaml", byRule("100/second")), "--upstream", "sample", "--store", server.URL(), "--degraded-field")
	g.Await("the outage is logged", func(r record) bool {
		return strings.Contains(r.Msg, "the store is unavailable") && strings.Contains(r.Error, "connection refused")
	})
	client := newClient(t)
	for path, want := range map[string]int{open: 200, shared: 200, closed: 503} {
		if a := (shot{g, path, "k"}).fire(client); a.status != want || !a.degraded || a.wrong != "" {
			t.Errorf("without the store: %+v", a)
		}
	}
	server.Restart("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	limit(t, "is used", awaitBoth([2]*gateway{g, g}, "the store is used", back), 4*time.Second)
	decides(t, shot{g, closed, "k"}, http.StatusOK)
	g.Await("the unsafe setting is logged", func(r record) bool {
		return strings.Contains(r.Msg, "unsafe store settings") && strings.Contains(r.Text, "allkeys-lru")
	})
	node := redistest.StartCluster(t, 3, 0).Nodes[0]
	code, stderr := run(t, "serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", "redis://"+node.Addr)
	if code != 1 || !strings.Contains(stderr, "use redis-cluster://") {
		t.Errorf("a node of a cluster: exit code %d, %s", code, stderr)
	}
}
