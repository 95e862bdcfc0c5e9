//go:build long

package fleet

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// besideReal sends the same requests to real gateways over one Redis and to simulated processes, and returns a text
// about the differences. Without full, it runs only one of the combinations, for a short time.
func besideReal(t *testing.T, full bool) string {
	const rate = 1_000
	nodes, horizons, demands, lasts := []int{2}, []time.Duration{250 * time.Millisecond}, []float64{2}, time.Second
	if full {
		nodes, horizons, demands, lasts = []int{2, 4}, []time.Duration{25 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond}, []float64{1, 2}, 8*time.Second
	}
	var rows strings.Builder
	fewest, most := math.Inf(1), math.Inf(-1) // calls of the gateways per simulated call
	var apart float64                         // the largest difference of under, in percentage points
	for _, demand := range demands {
		for _, n := range nodes {
			for _, h := range horizons {
				f := fleet{n, rate, h, demand, lasts}
				var simulated, real outcome
				synctest.Test(t, func(t *testing.T) { simulated = f.simulate(t) })
				t.Run(fmt.Sprintf("%d gateways, horizon %v, demand %g", n, h, demand), func(t *testing.T) { real = f.run(t) })
				if simulated.over > 0 || real.admitted == 0 || real.calls == 0 {
					t.Errorf("%+v: simulated %+v, real %+v", f, simulated, real)
				}
				calls := real.callsADecision() / simulated.callsADecision()
				fewest, most = min(fewest, calls), max(most, calls)
				apart = max(apart, math.Abs(real.under()-simulated.under()))
				fmt.Fprintf(&rows, "| %d | %v | %.0f | %.2g | %.2g | %.2g | %.2g |\n", n, h, float64(real.asked)/lasts.Seconds(),
					simulated.callsADecision(), real.callsADecision(), simulated.under(), real.under())
			}
		}
	}
	return fmt.Sprintf("\n## Compared with real gateways\n\n"+
		"The same with `sluice serve`, in several processes over one Redis. The gateways get HTTP requests at the times of the simulated requests, on a machine with %d cores on which the client runs, too. "+
		"The requests are for one key with a limit of %d units a second, for %v after a warm-up of %v. Calls are runs of the script that takes units, as counted by Redis.\n\n"+
		"| processes | horizon | requests a second | calls a decision, simulated | gateways | under, %%, simulated | gateways |\n|---|---|---|---|---|---|---|\n%s\n"+
		"For each simulated call, the gateways make between %.2f and %.2f calls. The values of \"under\" differ by at most %.2g percentage points.\n", runtime.NumCPU(), rate, lasts, lasts, &rows, fewest, most, apart)
}

var scripts = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// run runs a fleet of gateways with one Redis, and returns the outcome.
func (f fleet) run(t *testing.T) outcome {
	server := redistest.Start(t)
	rule := fmt.Sprintf("version: 1\nrules:\n  - {name: hot, limit: %d/second burst %d, consistency: leased, on_error: deny}\n", f.rate, f.burst())
	args := []string{"--upstream", "sample", "--policy", testkit.File(t, "policy.yaml", rule), "--store", server.URL(), "--store-timeout", "2s", "--log-refusals=false"}
	var urls []string
	for range f.nodes {
		urls = append(urls, testkit.Serve(t, args...).URL)
	}
	// While the machine is late, requests wait for a connection. More than this number of connections from one address
	// are closed by a gateway that may have few open files.
	const connections = 32
	transport := &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	return f.watch(f.plan(), func(node int) (int64, bool) {
		at := time.Now().UnixMicro()
		resp, err := client.Get(urls[node] + "/health")
		if err != nil {
			t.Error(err)
			return at, false
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		if degraded := resp.Header.Get("X-RateLimit-Degraded"); degraded != "" || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%s, degraded: %q", resp.Status, degraded)
		}
		return at, resp.StatusCode == http.StatusOK
	}, func() int64 {
		found := scripts.FindStringSubmatch(server.Do("INFO", "commandstats"))
		if found == nil {
			return 0
		}
		n, err := strconv.ParseInt(found[1], 10, 64)
		if err != nil {
			t.Error(err)
		}
		return n
	})
}
