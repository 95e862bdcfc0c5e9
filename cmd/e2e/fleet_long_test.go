//go:build long

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const (
	fleetSize  = 8
	fleetKeys  = 1000
	fleetLimit = 5 // a day, so one limiter would admit as many during the test
)

// fleetKinds are algorithms that admit exactly fleetLimit requests of a client during the test.
var fleetKinds = []string{"token_bucket", "sliding_window_counter", "sliding_window_log", "fixed_window"}

// Several processes with one Redis together admit exactly as many requests as one process would.
func TestLongFleet(t *testing.T) {
	awayFromMidnight(t)
	var policy strings.Builder
	policy.WriteString("version: 1\nrules:\n")
	for _, kind := range fleetKinds {
		fmt.Fprintf(&policy, "  - {name: %s, match: /%[1]s, key: [header:X-Client], limit: %d/day, algorithm: %[1]s, on_error: deny}\n", kind, fleetLimit)
	}
	through := make([]atomic.Int64, fleetKeys) // by key
	upstream := upstreamOf(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var key int
		if _, err := fmt.Sscan(r.Header.Get("X-Client"), &key); err != nil {
			t.Error(err)
		}
		through[key].Add(1)
	}))
	redis := redistest.Start(t)
	args := append([]string{"--policy", testkit.File(t, "policy.yaml", policy.String()), "--upstream", upstream, "--store", redis.URL()}, patientStore...)
	admitted := make([]atomic.Int64, fleetKeys)
	until := time.Now().Add(max(fleetTime, 4*time.Second))
	client := newClient(t)
	var workers sync.WaitGroup
	for i := range fleetSize {
		g := serve(t, args...)
		// Every gateway gets at least one request for every key, so that each key gets more requests than its limit,
		// however slow the machine is.
		order, next := rand.New(rand.NewPCG(1, uint64(i))).Perm(fleetKeys), new(atomic.Int64)
		for range 3 {
			workers.Go(func() {
				for n := next.Add(1) - 1; n < fleetKeys || time.Now().Before(until); n = next.Add(1) - 1 {
					key := order[n%fleetKeys]
					switch status := ask(t, client, g.URL+"/"+fleetKinds[key%len(fleetKinds)], "X-Client", fmt.Sprint(key)); status {
					case http.StatusOK:
						admitted[key].Add(1)
					case http.StatusTooManyRequests:
					default:
						t.Errorf("key %d: %d", key, status)
					}
				}
			})
		}
	}
	workers.Wait()
	for key := range admitted {
		if n, passed := admitted[key].Load(), through[key].Load(); n != fleetLimit || passed != fleetLimit {
			t.Errorf("%s, key %d: %d were admitted and %d reached the upstream, want %d", fleetKinds[key%len(fleetKinds)], key, n, passed, fleetLimit)
		}
	}
	// Premise: the counts are in this server.
	var states int
	if fmt.Sscan(redis.Do("DBSIZE"), &states); states < fleetKeys {
		t.Errorf("the server has %d keys, want at least %d", states, fleetKeys)
	}
}

// ask returns the status of a response. Any goroutine may call it.
func ask(t *testing.T, client *http.Client, url string, header ...string) int {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Error(err)
		return 0
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}
