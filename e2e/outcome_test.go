package e2e

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

func failedLogins(limit string) string {
	return "version: 1\nrules: [{name: login, match: POST /login, key: [client_ip], limit: " + limit +
		", algorithm: sliding_window_log, on_error: deny, count: {status: [401]}}]\n"
}

// logins is an upstream that knows a right password from a wrong one, and holds those who ask for it.
type logins struct {
	wrong, right, held atomic.Int64
}

func (l *logins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("password") {
	case "right":
		l.right.Add(1)
	case "hold":
		_, _ = io.Copy(io.Discard, r.Body)
		l.held.Add(1)
		<-r.Context().Done()
	case "drop":
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	default:
		l.wrong.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// guess returns the answer to a login; its body has been read.
func guess(t *testing.T, client *http.Client, g *gateway, password string) *http.Response {
	r, err := http.NewRequest("POST", g.URL+"/login?password="+password, http.NoBody)
	if err != nil {
		t.Error(err)
		return new(http.Response)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return new(http.Response)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

// beforeLogins starts gateways over one Redis before an upstream of logins.
func beforeLogins(t *testing.T, limit string) (*logins, [2]*gateway) {
	t.Helper()
	upstream := new(logins)
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	args := append([]string{"--policy", testkit.File(t, "policy.yaml", failedLogins(limit)), "--upstream", server.URL, "--store", redistest.Shared(t).URL()}, patientStore...)
	return upstream, [2]*gateway{serve(t, args...), serve(t, args...)}
}

// Of 64 guesses at a time over two gateways, right and wrong mixed, exactly five wrong ones reach
// the upstream, and right ones never count: neither before the wrong ones nor among them.
func TestFailedLogins(t *testing.T) {
	t.Parallel()
	upstream, both := beforeLogins(t, "5/day")
	client := newClient(t)
	var wg sync.WaitGroup
	// until asks until its guess has got through, or no more will.
	until := func(i int, password string) {
		for upstream.wrong.Load() < 5 {
			resp := guess(t, client, both[i%2], password)
			if resp.StatusCode != http.StatusTooManyRequests {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	for i := range 64 {
		wg.Go(func() { until(i, "right") })
	}
	wg.Wait()
	if n := upstream.right.Load(); n != 64 {
		t.Fatalf("%d of 64 right ones got through", n)
	}
	for i := range 64 {
		wg.Go(func() { until(i, []string{"right", "wrong"}[i/2%2]) })
	}
	wg.Wait()
	if n := upstream.wrong.Load(); n != 5 {
		t.Errorf("%d wrong guesses have reached the upstream", n)
	}
	passed := upstream.right.Load()
	for _, g := range both {
		for range 5 {
			if resp := guess(t, client, g, "right"); resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s after five wrong ones", resp.Status)
			}
		}
	}
	if upstream.wrong.Load() != 5 || upstream.right.Load() != passed {
		t.Errorf("%d wrong and %d right guesses more have reached the upstream", upstream.wrong.Load()-5, upstream.right.Load()-passed)
	}
}

// hold starts guesses that the upstream does not answer, and waits until they are there.
func hold(t *testing.T, upstream *logins, g *gateway, n int64) (release func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	for range n {
		r, err := http.NewRequestWithContext(ctx, "POST", g.URL+"/login?password=hold", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
		}()
	}
	testkit.Await(t, "the guesses are held", func() bool { return upstream.held.Load() == n })
	return cancel
}

// A gateway that is killed takes the places of what was under way with it, for a period.
func TestFailedLoginsKilled(t *testing.T) {
	t.Parallel()
	upstream, both := beforeLogins(t, "5/day")
	client := newClient(t)
	hold(t, upstream, both[0], 3)
	both[0].Signal(syscall.SIGKILL)
	both[0].Wait()
	for i, want := range []int{http.StatusUnauthorized, http.StatusUnauthorized, http.StatusTooManyRequests} {
		if resp := guess(t, client, both[1], "wrong"); resp.StatusCode != want {
			t.Errorf("guess %d beside three that were killed: %s, want %d", i+1, resp.Status, want)
		}
	}
}
