package stores_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/stores"
)

const layers = `
version: 1
rules:
  - {name: key, key: [api_key], limit: 20/day, algorithm: fixed_window, penalty: 1h, on_error: deny}
  - {name: address, key: [client_ip], limit: 1000/day, on_error: deny}
  - {name: all, limit: 100000/day, algorithm: sliding_window_log, on_error: deny}`

// Whoever asks the same question, in however many processes at once, is charged once.
func TestSameQuestion(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Shared(t).URL(), "cluster": redistest.SharedCluster(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSameQuestion(t, url)
		})
	}
}

func testSameQuestion(t *testing.T, url string) {
	p, err := policyfile.Parse("layers.yaml", []byte(layers))
	if err != nil {
		t.Fatal(err)
	}
	var engines []*policy.Engine
	for range 3 {
		store := open(t, url, stores.Config{Deadline: time.Minute, Logger: new(said).logger()})
		engines = append(engines, policy.NewEngine(store, p))
	}
	for round := range 10 {
		key := fmt.Sprint("k", round)
		var first, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				// Twenty questions, three times each: as many as pass in a day.
				r := &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Api-Key": {key}}, ID: fmt.Sprint("question ", i%20)}
				d := engines[i%3].Decide(t.Context(), r)
				switch {
				case d.Err != nil || d.Unavailable:
					t.Errorf("%+v", d)
				case !d.Allowed:
					refused.Add(1)
				case !d.Repeated:
					first.Add(1)
				}
			})
		}
		all.Wait()
		if first.Load() != 20 || refused.Load() != 0 {
			t.Errorf("of twenty questions, asked three times each, %d were charged, and %d refused", first.Load(), refused.Load())
		}
		for _, e := range engines {
			d := e.Decide(t.Context(), &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.1"), Header: http.Header{"X-Api-Key": {key}}, Mode: policy.Peek})
			if d.Allowed || d.Results[0].Remaining != 0 || d.Results[1].Remaining != int64(1000-20*(round+1)) {
				t.Errorf("then: %+v", d)
			}
		}
	}
}
