package e2e

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
)

// penalized starts two gateways over one Redis before an upstream of logins, which have a penalty.
func penalized(t *testing.T, limit, penalty string) (*logins, [2]*gateway, *redistest.Server) {
	t.Helper()
	upstream, redis := new(logins), redistest.Start(t)
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	policy := "version: 1\nrules: [{name: login, match: POST /login, key: [client_ip], limit: " + limit +
		", algorithm: sliding_window_log, on_error: deny, count: {status: [401]}, penalty: " + penalty + "}]\n"
	args := append([]string{"--policy", write(t, "policy.yaml", policy), "--upstream", server.URL, "--store", redis.URL()}, patientStore...)
	return upstream, [2]*gateway{serve(t, args...), serve(t, args...)}, redis
}

// Who exceeds a limit at one gateway is refused at both until the same moment, also with a right
// password, and by 64 at a time, until the state is deleted.
func TestPenalty(t *testing.T) {
	t.Parallel()
	upstream, both, redis := penalized(t, "5/minute", "{first: 1h, factor: 2, most: 8h}")
	client := newAsker(t).client
	for i := range 5 {
		if resp := guess(t, client, both[0], "wrong"); resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("guess %d: %s", i+1, resp.Status)
		}
	}
	began := time.Now()
	var mu sync.Mutex
	ends := map[string]bool{}
	refused := func(g *gateway, password string) {
		resp := guess(t, client, g, password)
		after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		left := time.Hour - time.Since(began)
		if resp.StatusCode != http.StatusTooManyRequests || err != nil || after > 3600 || time.Duration(after)*time.Second < left-time.Second {
			t.Errorf("%s, Retry-After %q, want about %v", resp.Status, resp.Header.Get("Retry-After"), left)
		}
		if resp.Header.Get("X-Ratelimit-Remaining") != "0" {
			t.Errorf("it is told that %q remain", resp.Header.Get("X-Ratelimit-Remaining"))
		}
		mu.Lock()
		defer mu.Unlock()
		ends[resp.Header.Get("X-Ratelimit-Reset")] = true
	}
	refused(both[0], "wrong")
	for _, g := range both {
		refused(g, "wrong")
		refused(g, "right")
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 5 {
				refused(both[i%2], "right")
			}
		})
	}
	wg.Wait()
	if len(ends) != 1 {
		t.Errorf("the end is told as %v", ends)
	}
	if wrong, right := upstream.wrong.Load(), upstream.right.Load(); wrong != 5 || right != 0 {
		t.Errorf("%d wrong and %d right guesses have reached the upstream, want 5 and none", wrong, right)
	}
	redis.Do("FLUSHALL")
	redistest.Eventually(t, "both let pass again", func() bool {
		return guess(t, client, both[0], "right").StatusCode == http.StatusOK && guess(t, client, both[1], "right").StatusCode == http.StatusOK
	})
}

// A penalty is over when it was said to be, and not before.
func TestPenaltyEnds(t *testing.T) {
	t.Parallel()
	upstream, both, _ := penalized(t, "3/100ms", "2s")
	client := newAsker(t).client
	var offended time.Time
	redistest.Eventually(t, "the limit is exceeded", func() bool {
		offended = time.Now()
		return guess(t, client, both[0], "wrong").StatusCode == http.StatusTooManyRequests
	})
	for i := 0; ; i++ {
		right := upstream.right.Load()
		resp := guess(t, client, both[i%2], "right")
		if resp.StatusCode == http.StatusOK {
			break
		}
		if after := resp.Header.Get("Retry-After"); resp.StatusCode != http.StatusTooManyRequests || after != "1" && after != "2" || upstream.right.Load() != right {
			t.Fatalf("%s, Retry-After %q", resp.Status, after)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if took := time.Since(offended); took < 2*time.Second {
		t.Errorf("somebody passes after %v", took)
	}
}
