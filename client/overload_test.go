package client

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/policytest"
)

// 100 clients send a request at once to a server that serves four at a time. Their retries are spread over time, and
// there are at most four for each request.
func TestOverload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clients = 100
		e := policytest.Engine(t, "rules: [{name: capacity, in_flight: {auto: true, least: 4, most: 4}}]")
		var mu sync.Mutex
		start := time.Now()
		var at []time.Duration // times of all requests, denied or not
		limited := httplimit.Policy(e)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(100 * time.Millisecond) }))
		p := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			at = append(at, time.Since(start))
			mu.Unlock()
			limited.ServeHTTP(w, r)
		}))
		base := p.transport(t)
		var all sync.WaitGroup
		served := 0
		for range clients {
			all.Go(func() {
				c := &http.Client{Transport: &Transport{Base: base}}
				response, err := c.Get("http://server/")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				mu.Lock()
				defer mu.Unlock()
				if response.StatusCode == http.StatusOK {
					served++
				}
			})
		}
		all.Wait()
		if n := len(at); n > clients*5 { // each request and four retries
			t.Errorf("%d requests of %d clients", n, clients)
		}
		busiest, within := 0, map[time.Duration]int{}
		for _, d := range at[clients:] {
			within[d/(100*time.Millisecond)]++
			busiest = max(busiest, within[d/(100*time.Millisecond)])
		}
		if busiest > clients/4 {
			t.Errorf("%d retries within 100 ms: %v", busiest, within)
		}
		if first := at[clients]; first < time.Second {
			t.Errorf("the first retry came after %v", first)
		}
		if served < clients*3/4 {
			t.Errorf("%d of %d clients are served", served, clients)
		}
		if state := policytest.Load(t, e); state.InFlight != 0 {
			t.Errorf("requests are still in flight: %+v", state)
		}
	})
}
