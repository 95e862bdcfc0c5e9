package e2e

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
)

// Requests that turn out to cost four times what was estimated pass no more than the limit in the long run,
// through three instances of which one is killed meanwhile. Only totals are held to the bound, by the time that
// it really took.
func TestDebtOfInstances(t *testing.T) {
	t.Parallel()
	const rate, estimate, real, clients, enough = 800, 10, 40, 2, 100
	var mu sync.Mutex
	var first, last time.Time
	passed := 0
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		if last = time.Now(); passed == 0 {
			first = last
		}
		passed++
		mu.Unlock()
		w.Header().Set("X-Cost", "40")
	}))
	defer upstream.Close()
	args := append([]string{"--policy", write(t, "policy.yaml", `version: 1
rules: [{name: all, limit: 800/second, cost: {response_header: X-Cost, estimate: 10, max: 80}, on_error: deny}]`),
		"--upstream", upstream.URL, "--store", redistest.Start(t).URL()}, patientStore...)
	gateways := []*gateway{serve(t, args...), serve(t, args...), serve(t, args...)}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return passed
	}
	var killed atomic.Bool
	var all sync.WaitGroup
	for i, g := range gateways {
		for range clients {
			all.Go(func() {
				for count() < enough {
					resp, err := http.Get(g.url)
					switch {
					case err == nil:
						resp.Body.Close()
					case i > 0 || !killed.Load():
						t.Error(err)
						return
					default:
						return
					}
				}
			})
		}
	}
	redistest.Eventually(t, "a quarter has passed", func() bool { return count() >= enough/4 })
	killed.Store(true)
	gateways[0].signal(syscall.SIGKILL)
	all.Wait()
	gateways[0].wait()
	// What drains, a burst, the overrun of each that was under way, and of those that the killed one never told of.
	took := last.Sub(first)
	most := int(took.Seconds()*rate) + rate + len(gateways)*clients*(real-estimate) + clients*(real-estimate) + real
	if passed*real > most {
		t.Errorf("%d units passed in %v, want %d at most", passed*real, took, most)
	}
	t.Logf("%d units passed in %v, %d may", passed*real, took, most)
}
