//go:build long

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// Two gateways share a queue over Redis, and many of their clients leave it before their turn. No request reaches the
// upstream before its turn.
func TestLongQueueThatClientsLeave(t *testing.T) {
	t.Parallel()
	const rate, clients, lasts = 20, 60, 4 * time.Second
	var mu sync.Mutex
	var passed []time.Time
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		passed = append(passed, time.Now())
	}))
	defer upstream.Close()
	args := append([]string{"--upstream", upstream.URL, "--store", redistest.Start(t).URL(), "--policy",
		testkit.File(t, "p.yaml", fmt.Sprintf("version: 1\nrules: [{name: q, limit: %d/second burst 40, algorithm: leaky_bucket}]\n", rate))}, patientStore...)
	gateways := []*gateway{serve(t, args...), serve(t, args...)}
	var left atomic.Int64
	start := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), start.Add(lasts))
	defer cancel()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				patience := time.Minute
				if i%5 < 2 { // 40 % of the clients
					patience = time.Duration(100+rand.IntN(1500)) * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(ctx, patience)
				r, err := http.NewRequestWithContext(ctx, "GET", gateways[rand.IntN(2)].URL, nil)
				if err != nil {
					t.Error(err)
				}
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					left.Add(1)
				} else if response.Body.Close(); response.StatusCode != http.StatusOK {
					time.Sleep(20 * time.Millisecond) // a pause before the next request
				}
				cancel()
			}
		})
	}
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	for i, at := range passed {
		if turn := start.Add(time.Duration(i) * time.Second / rate); at.Before(turn) {
			t.Fatalf("request %d has reached the upstream %v before its turn", i, turn.Sub(at))
		}
	}
	t.Logf("%d have left, and %d have passed", left.Load(), len(passed))
	if left.Load() == 0 || len(passed) == 0 {
		t.Error("the test checked nothing: no client left, or no request passed")
	}
}
