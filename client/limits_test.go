package client

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
)

// A thousand programs that were refused at once do not come back at once, and none comes early. How
// far the times of their second requests are from evenly spread is the statistic of Kolmogorov and
// Smirnov: of a thousand even ones it is above 3.5 once in 10^10 runs.
func TestThousandDoNotComeBackTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal     http.HandlerFunc
		first, last time.Duration
	}{
		"Retry-After of a second":   {say(429, "Retry-After: 1"), 1 * s, 2 * s},
		"Retry-After of 20 seconds": {say(429, "Retry-After: 20"), 20 * s, 30 * s},
		"no Retry-After":            {say(429), 0, s},
	} {
		t.Run(name, func(t *testing.T) {
			const clients = 1000
			var mu sync.Mutex
			var times []time.Duration
			var asked atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if asked.Add(1) <= clients {
						c.refusal(w, r)
						return
					}
					mu.Lock()
					times = append(times, time.Since(start))
					mu.Unlock()
				})).transport(t)
				var all sync.WaitGroup
				for range clients {
					all.Go(func() { get(t, &http.Client{Transport: &Transport{Base: base}}, "/") })
				}
				all.Wait()
			})
			slices.Sort(times)
			if len(times) != clients || times[0] < c.first || times[clients-1] > c.last {
				t.Fatalf("%d came back, from %v to %v", len(times), times[0], times[len(times)-1])
			}
			distance := 0.0
			for i, at := range times {
				even := float64(at-c.first) / float64(c.last-c.first)
				distance = max(distance, math.Abs(even-float64(i)/clients), math.Abs(even-float64(i+1)/clients))
			}
			if d := distance * math.Sqrt(clients); d > 3.5 {
				t.Errorf("they are not spread: the distance is %.2f", d)
			}
		})
	}
}

// A server that refuses everything gets a tenth more requests, and fifty.
func TestBudget(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]http.HandlerFunc{"429": say(429), "503": say(503, "Retry-After: 1")} {
		t.Run(name, func(t *testing.T) {
			const programs, each = 20, 100
			var asked atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				base := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					refusal(w, r)
				})).transport(t)
				c := &http.Client{Transport: &Transport{Base: base}}
				var all sync.WaitGroup
				for i := range programs {
					all.Go(func() {
						for j := range each {
							get(t, c, fmt.Sprintf("/%d/%d", i, j))
						}
					})
				}
				all.Wait()
			})
			const requests = programs * each
			if n := asked.Load(); n < requests+requests/10 || n > requests+requests/10+50 {
				t.Errorf("%d requests reached the server for %d", n, requests)
			}
		})
	}
}

// Forty that share a key, behind each kind of limit and each dialect of ours: everyone gets through at
// the pace of the limit, and is refused only before anything is known of it. Where nothing is told
// but Retry-After, limits are found out by what is refused, and so some are.
func TestBehindSluice(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []sluice.Algorithm{sluice.TokenBucket, sluice.FixedWindow, sluice.SlidingWindowLog} {
		for name, config := range map[string]httplimit.Config{
			"draft 11": {},
			"draft 7":  {Dialect: answer.Draft7, XFields: answer.NoXFields},
			"draft 3":  {Dialect: answer.Draft3, XFields: answer.NoXFields},
			"X, Unix":  {Dialect: answer.NoRateLimit},
			"X, delta": {Dialect: answer.NoRateLimit, XFields: answer.XDelta},
			"nothing":  {Dialect: answer.NoRateLimit, XFields: answer.NoXFields},
		} {
			t.Run(fmt.Sprint(algorithm, "/", name), func(t *testing.T) {
				limit := sluice.Limit{Algorithm: algorithm, Count: 20, Period: time.Second}
				got := askTogether(t, config, limit, 40, 10)
				t.Logf("%d passed, %d refused, in %v", got.passed, got.refused, got.took)
				switch {
				case name == "nothing":
					if got.passed < 320 || got.refused > 160 || got.took > time.Minute {
						t.Error("that is too bad a guess")
					}
				case got.passed != 400 || got.refused < 20 || got.refused > 30 || got.took < 19*s || got.took > 45*s:
					t.Error("400 were to pass in 19 s, of the 40 at the beginning 20 to be refused, and no others")
				}
			})
		}
	}
}

// together is what callers have met.
type together struct {
	passed, refused int64
	took            time.Duration
}

// askTogether lets callers who share a client ask a server so often each, one request after another.
func askTogether(t *testing.T, config httplimit.Config, limit sluice.Limit, callers, each int) (got together) {
	var refused, passed atomic.Int64
	synctest.Test(t, func(t *testing.T) {
		limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
		if err != nil {
			t.Fatal(err)
		}
		door := config.Limit(limiter, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		c := &http.Client{Transport: &Transport{Base: distant{serve(t, door).transport(t), &refused}}}
		start := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					if get(t, c, "/") == http.StatusOK {
						passed.Add(1)
					}
				}
			})
		}
		all.Wait()
		got.took = time.Since(start)
	})
	got.passed, got.refused = passed.Load(), refused.Load()
	return got
}

// distant is a server 20 ms away, whose refusals are counted.
type distant struct {
	http.RoundTripper
	refused *atomic.Int64
}

func (d distant) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(20 * time.Millisecond)
	response, err := d.RoundTripper.RoundTrip(r)
	time.Sleep(20 * time.Millisecond)
	if err == nil && response.StatusCode == http.StatusTooManyRequests {
		d.refused.Add(1)
	}
	return response, err
}
