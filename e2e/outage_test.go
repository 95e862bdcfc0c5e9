package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
)

// While the store is away policies are loaded, and /readyz says what it was told to say.
func TestChaosReloadAndReady(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	path := write(t, "policy.yaml", limited(100))
	args := []string{"--policy", path, "--upstream", "sample", "--store", server.URL()}
	plain, strict := serve(t, args...), serve(t, append(args, "--strict-ready")...)
	both := [2]*gateway{plain, strict}
	server.Kill()
	for _, g := range both {
		go http.Get(g.url + "/health") // somebody has to notice
		g.await("the circuit opens", away)
	}
	strict.awaitStatus(strict.admin+"/readyz", http.StatusServiceUnavailable)
	for url, want := range map[string]int{plain.admin + "/readyz": 200, strict.admin + "/healthz": 200, strict.admin + "/readyz": 503} {
		if status, _ := get(t, url); status != want {
			t.Errorf("GET %s while the store is away: %d, want %d", url, status, want)
		}
	}
	overwrite(t, path, limited(200))
	for _, g := range both {
		g.await("the change is seen", loaded)
		wantInForce(t, g, 200)
	}
	server.Restart()
	awaitBoth(both, "the circuit closes", back)
	strict.awaitStatus(strict.admin+"/readyz", http.StatusOK)
}

// A queue goes on: those who wait get their turn, and others are decided by the rule.
func TestChaosQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	text := `version: 1
rules:
  - {name: local, match: GET /api/users, limit: 5/second burst 10, algorithm: leaky_bucket, on_error: local}
  - {name: deny, match: GET /api/search, limit: 5/second burst 10, algorithm: leaky_bucket, on_error: deny}
`
	// A busy machine may keep somebody longer than the usual deadline.
	both := pair(t, text, server.URL(), "--store-timeout", "5s")
	client := newClient(t)
	waiting := make([]answer, 8)
	var callers sync.WaitGroup
	for i := range waiting {
		callers.Go(func() { waiting[i] = shot{both[i%2], shared, ""}.fire(client) })
	}
	redistest.Eventually(t, "all are in the queue", func() bool {
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
			t.Errorf("one that was in the queue: %+v", a)
		}
	}
	if longest < time.Second {
		t.Errorf("the last of 8 at 5 a second has waited %v", longest)
	}
}

func TestChaosStart(t *testing.T) {
	t.Parallel()
	t.Run("without the store", func(t *testing.T) {
		server := redistest.Start(t)
		server.Kill()
		path := write(t, "policy.yaml", byRule("100/second"))
		g := serve(t, "--policy", path, "--upstream", "sample", "--store", server.URL(), "--degraded-field")
		g.await("it is said", func(r record) bool {
			return strings.Contains(r.Msg, "cannot be reached") && strings.Contains(r.Error, "connection refused")
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
		g.await("a danger is named", func(r record) bool { return strings.Contains(r.Msg, "unsafe store settings") })
		g.mu.Lock()
		defer g.mu.Unlock()
		if !strings.Contains(g.raw.String(), "allkeys-lru") {
			t.Error("the log does not name the eviction policy")
		}
	})
	locked := redistest.Start(t, "--requirepass", "s3cret")
	plain := redistest.Start(t)
	node := redistest.StartCluster(t, 3, 0).Nodes[0]
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"required":          {[]string{"--store", "redis://127.0.0.1:1", "--require-store"}, "connection refused"},
		"wrong password":    {[]string{"--store", "redis://:wr0ng@" + locked.Addr}, "password is wrong"},
		"TLS to plain":      {[]string{"--store", "rediss://" + plain.Addr}, "use redis://"},
		"cluster as single": {[]string{"--store", "redis://" + node.Addr}, "use redis-cluster://"},
		"no URL":            {[]string{"--store", "localhost:6379"}, "scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			code, stderr := run(t, append([]string{"serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, test.args...)...)
			if code != 1 || !strings.Contains(stderr, test.want) || !strings.Contains(stderr, "--store") || strings.Contains(stderr, "wr0ng") {
				t.Errorf("code %d, want 1 and %q:\n%s", code, test.want, stderr)
			}
			limit(t, "is refused", time.Since(begin), 5*time.Second)
		})
	}
}
