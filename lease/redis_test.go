package lease

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// TestMain fails if a goroutine is left after all tests. It ignores those in which the client of a cluster waits for
// seconds before it looks at the nodes again, or closes connections to removed nodes.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// Several processes share a key of a real server or cluster. An exact limiter admits everything that they admit, at the
// same times. At least a quarter of the decisions are by lease. A closed Store passes charges on to the server.
func TestRedis(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func() string{
		"server":  func() string { return redistest.Shared(t).URL() },
		"cluster": func() string { return redistest.SharedCluster(t).URL() },
	} {
		for _, l := range []sluice.Limit{
			{Count: 4_000, Period: time.Second, Burst: 1_000},
			{Algorithm: sluice.SlidingWindowCounter, Count: 4_000, Period: time.Second},
		} {
			t.Run(name+" "+l.Algorithm.String(), func(t *testing.T) {
				t.Parallel()
				testRedis(t, url(), l)
			})
		}
	}
}

func testRedis(t *testing.T, url string, l sluice.Limit) {
	p := plan(t, l)
	shared, err := redisstore.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	var mu sync.Mutex
	var events []event
	var asked, leased atomic.Int64
	var all sync.WaitGroup
	for range 3 {
		s := New(shared)
		all.Go(func() {
			for asked.Load() < 3_000 {
				r := take(t, s, p, 1, sluice.Leased)
				asked.Add(1)
				if r.Origin == sluice.ByLease {
					leased.Add(1)
				}
				if d := p.Decide(1, r); d.Allowed {
					mu.Lock()
					events = append(events, event{r.Now, 1})
					mu.Unlock()
				} else if d.RetryAfter <= 0 {
					t.Errorf("a denial: %+v", d)
				}
				time.Sleep(500 * time.Microsecond)
			}
			s.Close()
			if r := take(t, s, p, 0, sluice.Leased); r.Origin != sluice.ByStore {
				t.Errorf("after Close: %+v", r)
			}
		})
	}
	all.Wait()
	if over := replay(p, events); over > 0 {
		t.Errorf("over the limit by %d", over)
	}
	if asked, leased := asked.Load(), leased.Load(); leased < asked/4 || len(events) < 1000 {
		t.Errorf("%d of %d were admitted, and %d decided by lease", len(events), asked, leased)
	}
}
