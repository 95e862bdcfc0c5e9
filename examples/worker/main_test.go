package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// api is an API of another service, without a network.
type api func(*http.Request) int

func (a api) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.WriteHeader(a(r))
	return w.Result(), nil
}

// Two workers with the same limiter do twenty jobs: five at once, and then five a second.
func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := sluice.NewLimiter(memory.New(), "jobs", sluice.Limit{Count: 5, Period: time.Second, Burst: 5})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var posted []time.Duration
		began := time.Now()
		server := &http.Client{Transport: api(func(*http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			posted = append(posted, time.Since(began))
			return http.StatusAccepted
		})}
		var workers sync.WaitGroup
		for range 2 {
			workers.Go(func() {
				if err := work(t.Context(), limiter, server, "http://api.test/jobs", strings.NewReader(strings.Repeat("job\n", 10))); err != nil {
					t.Error(err)
				}
			})
		}
		workers.Wait()
		if len(posted) != 20 {
			t.Fatalf("%d jobs are done", len(posted))
		}
		for i, at := range posted {
			if want := time.Duration(max(0, i-4)) * 200 * time.Millisecond; at != want {
				t.Errorf("job %d is posted after %v, want %v", i+1, at, want)
			}
		}
	})
}

func TestWorkFails(t *testing.T) {
	limiter, err := sluice.NewLimiter(memory.New(), "jobs", sluice.Limit{Count: 5, Period: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Client{Transport: api(func(*http.Request) int { return http.StatusBadRequest })}
	if err := work(t.Context(), limiter, server, "http://api.test/jobs", strings.NewReader("a\nb\n")); err == nil || !strings.Contains(err.Error(), `"a": 400`) {
		t.Errorf("error %v", err)
	}
}
