//go:build long

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/testkit"
)

// pair starts two instances with a store, and waits until they know each other. After the test, they must not hold more
// goroutines and files than at that time.
func pair(t *testing.T, policy, store string, args ...string) (both [2]*gateway) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(upstream.Close)
	// In the short form, a busy machine must not look like a fault of the store.
	deadline := sized(20*failover.DefaultDeadline, failover.DefaultDeadline).String()
	args = append([]string{"--policy", testkit.File(t, "policy.yaml", policy), "--upstream", upstream.URL, "--store", store, "--store-timeout", deadline, "--degraded-field"}, args...)
	for i := range both {
		both[i] = serve(t, args...)
	}
	for _, g := range both {
		testkit.Await(t, "the instances know each other", func() bool { return g.Metric("sluice_store_instances") == 2 })
		before := holds(t, g)
		t.Cleanup(func() {
			upstream.CloseClientConnections()
			noMore(t, g, before, 1+strings.Count(store, ","))
		})
	}
	return both
}

// holding is the number of goroutines and open files of a process.
type holding struct{ goroutines, files float64 }

func holds(t *testing.T, g *gateway) holding {
	return holding{g.Metric("go_goroutines"), g.Metric("process_open_fds")}
}

// noMore waits until an idle process holds no more than before, except for a few connections of this test and, for each
// node of its store, probes and the connections of a pool.
func noMore(t *testing.T, g *gateway, before holding, nodes int) {
	t.Helper()
	if t.Failed() {
		return
	}
	few, pool := float64(6*nodes), float64(30*nodes)
	http.DefaultClient.CloseIdleConnections()
	var now holding
	testkit.Await(t, "no goroutine and no file is left", func() bool {
		now = holds(t, g)
		return now.goroutines <= before.goroutines+few && now.files <= before.files+few+pool
	})
	t.Logf("before %+v, now %+v", before, now)
}

// byWhom returns how many decisions the store has made, and how many the fallback.
func byWhom(t *testing.T, both [2]*gateway) (store, standIn float64) {
	t.Helper()
	for _, g := range both {
		store += g.Metric(`sluice_store_decisions_total{by="store"}`)
		standIn += g.Metric(`sluice_store_decisions_total{by="stand_in"}`)
	}
	return store, standIn
}

func unavailable(r record) bool { return strings.HasPrefix(r.Msg, "shared store is unavailable") }
func back(r record) bool        { return strings.HasPrefix(r.Msg, "shared store is available again") }

// awaitBoth waits until the last change of state that each instance has logged fits, and returns how long this took. On
// a busy machine, other changes may come before.
func awaitBoth(both [2]*gateway, what string, fits func(record) bool) time.Duration {
	begin := time.Now()
	for _, g := range both {
		g.Helper()
		g.AwaitRecords(what, func(all []record) bool {
			for _, r := range slices.Backward(all) {
				if unavailable(r) || back(r) {
					return fits(r)
				}
			}
			return false
		})
	}
	return time.Since(begin)
}

// decides sends a request until the store decides it, and checks the status. On a busy machine, some requests may miss
// the deadline.
func decides(t *testing.T, s shot, status int) {
	t.Helper()
	client, a := newClient(t), answer{}
	testkit.Await(t, "the store decides", func() bool {
		a = s.fire(client)
		return !a.degraded
	})
	if a.status != status || a.wrong != "" {
		t.Errorf("with the store: %+v, want %d", a, status)
	}
}

// forget makes changesOf count from now on. After it, awaitBoth does not know the state.
func forget(both [2]*gateway) {
	for _, g := range both {
		g.Forget()
	}
}

// changesOf returns the number of changes of state since forget was called.
func changesOf(both [2]*gateway) (n int) {
	for _, g := range both {
		for _, r := range g.Records() {
			if unavailable(r) || back(r) {
				n++
			}
		}
	}
	return n
}

// settled waits until the store decides all requests, and all counts are written back.
func settled(t *testing.T, both [2]*gateway) {
	t.Helper()
	for _, g := range both {
		testkit.Await(t, "all is settled", func() bool {
			return g.Metric("sluice_store_unavailable") == 0 && g.Metric("sluice_store_owing_keys") == 0
		})
	}
}

// spread aims at both instances and all paths in turn, for two keys.
func spread(both [2]*gateway, paths ...string) func(n int) shot {
	return func(n int) shot {
		return shot{both[n%2], paths[n/2%len(paths)], fmt.Sprint("k", n/2/len(paths)%2)}
	}
}

func rate() int { return sized(300, 2000) }
