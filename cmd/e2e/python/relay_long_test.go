//go:build long

package python

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// relay is a proxy between the middleware and the service. It counts calls, and can lose or delay answers.
type relay struct {
	URL         string
	mu          sync.Mutex
	connections int
	calls       map[string]int
	asked       int             // checks in these calls
	lose        map[string]bool // the next answer of this path is lost, once
	gate        chan struct{}   // calls wait until it is closed; nil lets them pass
	large       int             // calls whose bodies are larger than 64 KiB
	slow        bool            // large calls get no answer
}

func newRelay(t *testing.T, check string) *relay {
	r := &relay{calls: map[string]int{}, lose: map[string]bool{}}
	to := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: check})
	to.ErrorLog = log.New(io.Discard, "", 0)
	to.ModifyResponse = func(resp *http.Response) error { // sent in chunks, as by some proxies
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
		return nil
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		q.Body = io.NopCloser(bytes.NewReader(body))
		r.mu.Lock()
		r.calls[q.URL.Path]++
		if q.URL.Path == "/v1/check" {
			r.asked += bytes.Count(body, []byte(`"id"`))
		}
		slow := r.slow && len(body) > 64<<10
		if slow {
			r.large++
		}
		gate, lose := r.gate, r.lose[q.URL.Path]
		delete(r.lose, q.URL.Path)
		r.mu.Unlock()
		if slow {
			<-q.Context().Done()
			return
		}
		if gate != nil {
			<-gate
		}
		if lose {
			to.ServeHTTP(httptest.NewRecorder(), q)
			panic(http.ErrAbortHandler)
		}
		to.ServeHTTP(w, q)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if state == http.StateNew {
			r.connections++
		}
	}
	s.Start()
	t.Cleanup(func() {
		r.open()
		s.Close()
	})
	r.URL = s.URL
	return r
}

func (r *relay) count(path string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[path]
}

func (r *relay) loseNext(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose[path] = true
}

func (r *relay) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
}

func (r *relay) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate != nil {
		close(r.gate)
		r.gate = nil
	}
}
