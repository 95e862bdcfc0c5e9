//go:build long

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Paths of the sample API, each with its own rule.
const (
	open   = "/health"     // on_error: allow
	shared = "/api/users"  // on_error: local
	closed = "/api/search" // on_error: deny
)

// byRule returns a policy with the same limit for each setting of on_error.
func byRule(limit string) string {
	text := "version: 1\nrules:\n"
	for path, onError := range map[string]string{open: "allow", shared: "local", closed: "deny"} {
		text += fmt.Sprintf("  - {name: %s, match: GET %s, key: [header:X-Key], limit: %s, on_error: %s}\n", onError, path, limit, onError)
	}
	return text
}

// shot is a request of a load.
type shot struct {
	gateway   *gateway
	path, key string
}

// answer is the result of a shot.
type answer struct {
	shot
	begin    time.Time
	took     time.Duration
	status   int
	degraded bool
	wrong    string // the problem with the answer, or ""
}

func (a answer) end() time.Time { return a.begin.Add(a.took) }

func (s shot) fire(client *http.Client) answer {
	a := answer{shot: s, begin: time.Now()}
	r, err := http.NewRequest("GET", s.gateway.URL+s.path, nil)
	if err != nil {
		a.wrong = err.Error()
		return a
	}
	r.Header.Set("X-Key", s.key)
	resp, err := client.Do(r)
	if err != nil {
		a.took, a.wrong = time.Since(a.begin), err.Error()
		return a
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	a.took, a.status = time.Since(a.begin), resp.StatusCode
	a.degraded = resp.Header.Get("X-RateLimit-Degraded") == "true"
	if err != nil {
		a.wrong = err.Error()
	} else {
		a.wrong = a.judge(resp.Header, string(body))
	}
	return a
}

// judge returns the problem with an answer, or "". A 503 is right only with on_error: deny.
func (a answer) judge(header http.Header, body string) string {
	switch a.status {
	case http.StatusOK, http.StatusTooManyRequests:
		return ""
	case http.StatusServiceUnavailable:
		if a.path == closed && a.degraded && header.Get("Retry-After") != "" && strings.Contains(body, "#temporary-reduced-capacity") {
			return ""
		}
	}
	return fmt.Sprintf("GET %s: %d %v %s", a.path, a.status, header, body)
}

// load is an open loop: requests are sent when they are due, whether earlier ones were answered or not. The short form
// skips requests that are due while many are under way, so that a busy machine is not overloaded by requests that wait
// for each other.
type load struct {
	t       *testing.T
	client  *http.Client
	begin   time.Time
	stop    chan struct{}
	running sync.WaitGroup
	room    chan struct{} // has an element for each request under way

	mu    sync.Mutex
	sent  int
	all   []answer
	ended bool
}

// fire sends perSecond shots a second until done is called.
func fire(t *testing.T, perSecond int, aim func(n int) shot) *load {
	t.Helper()
	l := &load{t: t, client: newClient(t), begin: time.Now(), stop: make(chan struct{}), room: make(chan struct{}, sized(32, 1<<16))}
	l.running.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for leftOut := 0; ; {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			// Requests that a late tick has missed are sent, too.
			for due := int(time.Since(l.begin).Seconds() * float64(perSecond)); l.sent+leftOut < due; {
				select {
				case l.room <- struct{}{}:
				default:
					leftOut = due - l.sent
					continue
				}
				s := aim(l.sent)
				l.sent++
				l.running.Go(func() {
					a := s.fire(l.client)
					<-l.room
					l.mu.Lock()
					defer l.mu.Unlock()
					l.all = append(l.all, a)
				})
			}
		}
	})
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	if !l.ended {
		l.ended = true
		close(l.stop)
		l.running.Wait()
		l.client.CloseIdleConnections()
	}
}

// done ends the load, and fails the test if answers are missing or wrong.
func (l *load) done() {
	l.t.Helper()
	l.end()
	if len(l.all) != l.sent || l.sent == 0 {
		l.t.Errorf("%d answers to %d requests", len(l.all), l.sent)
	}
	wrong, count, codes := "", 0, map[int]int{}
	for _, a := range l.all {
		codes[a.status]++
		if a.wrong != "" {
			wrong = a.wrong
			count++
		}
	}
	if count > 0 {
		l.t.Errorf("%d answers of %d are wrong, one of them: %s", count, len(l.all), wrong)
	}
	l.t.Logf("%d requests in %v, answers by status: %v", l.sent, time.Since(l.begin).Round(time.Millisecond), codes)
}

// count returns how many of the answers so far fit.
func (l *load) count(fits func(answer) bool) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.all {
		if fits(a) {
			n++
		}
	}
	return n
}

// where returns the answers that fit.
func (l *load) where(fits func(answer) bool) (found answers) {
	for _, a := range l.all {
		if fits(a) {
			found = append(found, a)
		}
	}
	return found
}

// admitted returns how many requests for a key have passed.
func (l *load) admitted(path, key string) int {
	return len(l.where(func(a answer) bool { return a.path == path && a.key == key && a.status == http.StatusOK }))
}

// within fits requests that began after from and ended before to.
func within(from, to time.Time) func(answer) bool {
	return func(a answer) bool { return a.begin.After(from) && a.end().Before(to) }
}

// sentWithin fits requests that began between from and to.
func sentWithin(from, to time.Time) func(answer) bool {
	return func(a answer) bool { return a.begin.After(from) && a.begin.Before(to) }
}

type answers []answer

func (all answers) quantile(q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	var took []time.Duration
	for _, a := range all {
		took = append(took, a.took)
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(q*float64(len(took))))]
}

func (all answers) String() string {
	return fmt.Sprintf("%d requests: p50 %v, p99 %v, longest %v", len(all), all.quantile(0.5), all.quantile(0.99), all.quantile(1))
}

// A store that is slow because the machine is busy must not be treated as unavailable.
var patientStore = []string{"--store-timeout", patience.String(), "--require-store"}

func loaded(r record) bool { return r.Msg == "policy loaded" }

// newClient returns a client that keeps a connection for each request that may be under way.
func newClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 4096}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}
