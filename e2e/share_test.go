package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/redisstore"
)

const (
	shareRate   = 60 // a second, and as much at once
	sharePolicy = `version: 1
tiers: {from: header:X-Plan}
rules:
  - name: api
    share: {of: 60/second, by: [header:X-Tenant], weights: {free: 1, pro: 3, big: 10}}
    on_error: deny
`
)

// sharer is a tenant that asks for more than its part, as often as it is answered.
type sharer struct {
	name, tier string
	weight     float64
	pause      time.Duration

	mu     sync.Mutex
	passed []time.Time
	asked  int
}

// sharers returns eight tenants of three weights, of whom the first asks hundreds of times for its part.
func sharers() (all []*sharer, weights float64) {
	for i := range 8 {
		s := &sharer{name: fmt.Sprint("tenant-", i), tier: []string{"free", "pro", "big"}[i%3], weight: []float64{1, 3, 10}[i%3], pause: 8 * time.Millisecond}
		if i == 0 {
			s.pause = time.Millisecond
		}
		weights += s.weight
		all = append(all, s)
	}
	return all, weights
}

// share has all of them ask for so long, and holds what they get to their parts.
func share(t *testing.T, lasts time.Duration, ask func(s *sharer, n int) (allowed bool)) {
	t.Helper()
	const settled = 2 * time.Second
	all, weights := sharers()
	start := time.Now()
	var work sync.WaitGroup
	for _, s := range all {
		work.Go(func() {
			for n := 0; time.Since(start) < lasts; n++ {
				allowed := ask(s, n)
				s.mu.Lock()
				if s.asked++; allowed {
					s.passed = append(s.passed, time.Now())
				}
				s.mu.Unlock()
				time.Sleep(s.pause)
			}
		})
	}
	work.Wait()
	took := time.Since(start)
	total, later := 0, 0.0
	for _, s := range all {
		part, got := shareRate*s.weight/weights*(took-settled).Seconds(), 0.0
		for _, at := range s.passed {
			if total++; at.Sub(start) >= settled {
				got++
			}
		}
		later += got
		t.Logf("%s (%s) asked %d times and got %v of %.1f", s.name, s.tier, s.asked, got, part)
		if float64(s.asked) < 1.5*part {
			t.Errorf("%s asked %d times: that is not enough for this test", s.name, s.asked)
		}
		if got < 0.75*part-2 { // the figures are held in virtual time, which no busy machine delays
			t.Errorf("%s got %v, and its part is %.1f", s.name, got, part)
		}
	}
	if most := shareRate * (1 + took.Seconds()); float64(total) > most {
		t.Errorf("%d passed in %v, and the limit are %v", total, took, most)
	}
	if used := later / (shareRate * (took - settled).Seconds()); used < 0.85 {
		t.Errorf("%.3f of the limit were used", used)
	}
}

// Engines of several processes over one Redis.
func TestShareOverRedis(t *testing.T) {
	redis := redistest.Start(t)
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			redis.Do("FLUSHALL")
			share(t, 5*time.Second, sharing(t, redis.URL(), n))
		})
	}
}

// Over a cluster, whose hash slots a limit and its tenants have in common.
func TestShareOverCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	share(t, 5*time.Second, sharing(t, c.URL(), 2))
}

// The clock of Redis jumps, either way: what was taken before may count for nothing, and shares are what
// they were two seconds later.
func TestShareClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			redis := redistest.StartMovable(t)
			ask := sharing(t, redis.URL(), 2)
			share(t, 3*time.Second, ask)
			redis.SetClock(jump)
			share(t, 5*time.Second, ask)
		})
	}
}

// sharing returns what asks several engines in turn that count in one store, and tell each other what
// they are asked for.
func sharing(t *testing.T, url string, n int) (ask func(s *sharer, n int) bool) {
	t.Helper()
	p, err := policyfile.Parse("policy.yaml", []byte(sharePolicy))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var talking sync.WaitGroup
	engines := make([]*policy.Engine, n)
	for i := range engines {
		store, err := redisstore.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		engines[i] = policy.NewEngine(store, p)
		talking.Go(func() { exchange(ctx, engines[i], store, fmt.Sprint(i)) })
	}
	t.Cleanup(func() {
		cancel()
		talking.Wait()
	})
	return func(s *sharer, n int) bool {
		h := http.Header{"X-Tenant": {s.name}, "X-Plan": {s.tier}}
		return engines[n%len(engines)].Decide(context.Background(), &policy.Request{Header: h}).Allowed
	}
}

// exchange does what a gateway does by itself.
func exchange(ctx context.Context, e *policy.Engine, store *redisstore.Store, id string) {
	for ctx.Err() == nil {
		if said := e.Demand(time.Now()); said != nil {
			_ = store.Post(ctx, "demand", id, said, 2*time.Second)
			posted, _ := store.Posted(ctx, "demand")
			delete(posted, id)
			var others [][]byte
			for _, said := range posted {
				others = append(others, said)
			}
			e.HearDemand(time.Now(), others)
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// Two gateways over one Redis.
func TestShareThroughGateways(t *testing.T) {
	redis := redistest.Start(t)
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	args := append([]string{"--policy", write(t, "policy.yaml", sharePolicy), "--upstream", server.URL, "--store", redis.URL()}, patientStore...)
	fleet := []*gateway{serve(t, args...), serve(t, args...)}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	t.Cleanup(client.CloseIdleConnections)
	share(t, 5*time.Second, func(s *sharer, n int) bool {
		req, err := http.NewRequest(http.MethodGet, fleet[n%len(fleet)].url, nil)
		if err != nil {
			t.Error(err)
			return false
		}
		req.Header = http.Header{"X-Tenant": {s.name}, "X-Plan": {s.tier}}
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
