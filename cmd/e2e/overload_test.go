package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

// Classes of requests, the most important first. They are also the paths of the requests.
const (
	critical  = "critical"
	normal    = "normal"
	sheddable = "sheddable"
)

// overloadPolicy returns a policy with an automatic limit, in shadow or in force, and classes by path.
func overloadPolicy(t testing.TB, capacity string) string {
	return testkit.File(t, "policy.yaml", `
version: 1
rules:
  - {name: capacity, `+capacity+`}
  - {name: charges, match: /critical, class: critical}
  - {name: exports, match: /sheddable, class: sheddable}
`)
}

// factory is an upstream with some workers, each of which serves one request at a time. Requests wait for a worker in
// an unbounded queue. As in most servers, requests of clients that have left are served, too. Their connections are
// closed at once, so that the number of open files does not bound the queue.
type factory struct {
	works   func() // serves a request
	workers chan struct{}
	closed  chan struct{} // closed when the test ends, to end requests in the queue
	most    atomic.Int64  // requests under way at a time
	now     atomic.Int64
	all     sync.WaitGroup
}

// newFactory starts a factory, and returns its URL.
func newFactory(t testing.TB, workers int, works func()) (f *factory, url string) {
	f = &factory{works: works, workers: make(chan struct{}, workers), closed: make(chan struct{})}
	f.hire(workers)
	t.Cleanup(f.all.Wait)
	url = upstreamOf(t, f)
	t.Cleanup(func() { close(f.closed) })
	return f, url
}

func (f *factory) hire(n int) {
	for range n {
		f.workers <- struct{}{}
	}
}

func (f *factory) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	served := make(chan struct{})
	f.all.Go(func() {
		defer close(served)
		f.serve()
	})
	select {
	case <-served:
	case <-r.Context().Done():
	}
}

// serve serves a request when a worker is free.
func (f *factory) serve() {
	n := f.now.Add(1)
	defer f.now.Add(-1)
	for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
	}
	select {
	case <-f.workers:
		defer func() { f.workers <- struct{}{} }()
		f.works()
	case <-f.closed:
	}
}

// clientPatience is the time after which a client gives up.
const clientPatience = time.Second

// fate is the end of a request.
type fate struct {
	class  string
	at     time.Duration // since the load began
	took   time.Duration
	status int // 0: the client has given up
	wrong  string
}

// openLoop sends requests at random times, whether earlier ones were answered or not. The times depend only on
// SLUICE_SEED.
type openLoop struct {
	rates map[string]float64 // requests a second, by class
	urls  func() string
	began time.Time

	client *http.Client
	late   atomic.Int64 // the longest delay of a request after its due time, in ns
	mu     sync.Mutex
	fates  []fate
}

func (c *openLoop) run(t testing.TB, lasts time.Duration) {
	c.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DialContext: (&net.Dialer{Timeout: clientPatience}).DialContext}}
	seed := seed.Of(t)
	c.began = time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), c.began.Add(lasts))
	defer cancel()
	var all, sending sync.WaitGroup
	for class, rate := range c.rates {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(class[0])))
			for due := time.Duration(0); ; {
				due += time.Duration(random.ExpFloat64() / rate * float64(time.Second))
				if due > lasts {
					return
				}
				if wait := time.Until(c.began.Add(due)); wait > 0 {
					select {
					case <-time.After(wait):
					case <-ctx.Done():
						return
					}
				}
				if late := int64(time.Since(c.began) - due); late > c.late.Load() {
					c.late.Store(late)
				}
				sending.Go(func() { c.send(t, class) })
			}
		})
	}
	all.Wait()
	sending.Wait()
	c.client.CloseIdleConnections()
}

func (c *openLoop) send(t testing.TB, class string) {
	ctx, cancel := context.WithTimeout(t.Context(), clientPatience)
	defer cancel()
	f := fate{class: class, at: time.Since(c.began)}
	r, err := http.NewRequestWithContext(ctx, "GET", c.urls()+"/"+class, nil)
	if err != nil {
		t.Error(err)
		return
	}
	start := time.Now()
	response, err := c.client.Do(r)
	if err == nil {
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		f.status, f.wrong = response.StatusCode, judgeShed(response, string(body))
	}
	f.took = time.Since(start)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fates = append(c.fates, f)
}

// judgeShed returns "" for a 200 or a complete denial, and otherwise the response.
func judgeShed(r *http.Response, body string) string {
	shed := r.StatusCode == http.StatusServiceUnavailable && strings.Contains(body, `"error":"overloaded"`) && r.Header.Get("Retry-After") != "" && r.Header.Get("RateLimit") == ""
	if r.StatusCode == http.StatusOK || shed {
		return ""
	}
	return fmt.Sprint(r.StatusCode, r.Header, body)
}

// sums are the counts of requests of one class, or of all.
type sums struct {
	sent, served, shed, late int
	took                     []time.Duration // of those served, sorted
}

// sums returns the sums of the requests of a class that were sent in a period. An empty class means all classes.
func (c *openLoop) sums(class string, from, until time.Duration) (s sums) {
	for _, f := range c.fates {
		if class != "" && f.class != class || f.at < from || f.at >= until {
			continue
		}
		s.sent++
		switch f.status {
		case http.StatusOK:
			s.served++
			s.took = append(s.took, f.took)
		case http.StatusServiceUnavailable:
			s.shed++
		default:
			s.late++
		}
	}
	slices.Sort(s.took)
	return s
}

// percent returns the percentage of requests that were served.
func (s *sums) percent() float64 { return 100 * float64(s.served) / float64(max(s.sent, 1)) }

// Three times as many requests arrive as the upstream can bear, of all classes. Without a limit, the upstream's queue
// makes all of them late. With a limit, the most important requests are served first, and the others are denied at
// once. The test compares only the order of classes and totals.
func TestOverload(t *testing.T) {
	t.Parallel()
	const workers, lasts = 8, 5 * time.Second
	served := func(capacity string) (*openLoop, *factory) {
		f, upstream := newFactory(t, workers, func() { time.Sleep(100 * time.Millisecond) }) // 80 a second
		g := serve(t, "--policy", overloadPolicy(t, capacity), "--upstream", upstream)
		c := &openLoop{rates: map[string]float64{critical: 40, normal: 100, sheddable: 100}, urls: func() string { return g.URL }}
		c.run(t, lasts)
		return c, f
	}
	var both sync.WaitGroup
	var limited, watched *openLoop
	var bounded *factory
	both.Go(func() { limited, bounded = served("in_flight: {auto: true, most: 64}") })
	both.Go(func() { watched, _ = served("in_flight: auto, shadow: true") })
	both.Wait()
	for _, f := range limited.fates {
		if f.wrong != "" {
			t.Fatal(f.wrong)
		}
	}
	all, none := limited.sums("", 0, lasts), watched.sums("", 0, lasts)
	high, middle, low := limited.sums(critical, 0, lasts), limited.sums(normal, 0, lasts), limited.sums(sheddable, 0, lasts)
	t.Logf("served: critical %.1f %%, normal %.1f %%, sheddable %.1f %%; in all %d of %d, %d denied; in shadow %d; at most %d under way", high.percent(), middle.percent(), low.percent(), all.served, all.sent, all.shed, none.served, bounded.most.Load())
	if none.shed != 0 {
		t.Errorf("%d were denied in shadow", none.shed)
	}
	// If the machine sends requests late, it determines load and latency. Then the order of classes is compared with a
	// tolerance.
	late, chance := time.Duration(max(limited.late.Load(), watched.late.Load())), 0.0
	if late > clientPatience/4 {
		chance = 10
	}
	if high.percent()+chance < middle.percent() || middle.percent()+chance < low.percent() {
		t.Error("a larger part of a lower class was served than of a higher one")
	}
	if late > clientPatience/4 {
		t.Logf("a request was sent %v after it was due: totals are not compared", late)
		return
	}
	if most := bounded.most.Load(); most > 64+16+1 { // critical requests have some more
		t.Errorf("%d were under way at once", most)
	}
	if all.shed == 0 || all.served <= none.served {
		t.Errorf("%d were denied and %d served, and %d served without the limit", all.shed, all.served, none.served)
	}
}
