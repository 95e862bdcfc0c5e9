package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"

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
	r, err := http.NewRequest("POST", g.url+"/login?password="+password, http.NoBody)
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
	args := append([]string{"--policy", write(t, "policy.yaml", failedLogins(limit)), "--upstream", server.URL, "--store", redistest.Start(t).URL()}, patientStore...)
	return upstream, [2]*gateway{serve(t, args...), serve(t, args...)}
}

// Of 64 guesses at a time over two gateways, right and wrong mixed, exactly five wrong ones reach
// the upstream, and right ones never count: neither before the wrong ones nor among them.
func TestFailedLogins(t *testing.T) {
	t.Parallel()
	upstream, both := beforeLogins(t, "5/day")
	client := newAsker(t).client
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
		r, err := http.NewRequestWithContext(ctx, "POST", g.url+"/login?password=hold", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
		}()
	}
	redistest.Eventually(t, "the guesses are held", func() bool { return upstream.held.Load() == n })
	return cancel
}

// A gateway that is killed takes the places of what was under way with it, for a period.
func TestFailedLoginsKilled(t *testing.T) {
	t.Parallel()
	for period, seconds := range map[string]int{"day": 24 * 3600, "3s": 3} {
		t.Run(period, func(t *testing.T) {
			t.Parallel()
			upstream, both := beforeLogins(t, "5/"+period)
			client := newAsker(t).client
			hold(t, upstream, both[0], 3)
			if err := both[0].process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			both[0].wait()
			wrong := 0
			var resp *http.Response
			for {
				if resp = guess(t, client, both[1], "wrong"); resp.StatusCode != http.StatusUnauthorized {
					break
				}
				wrong++
			}
			after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if resp.StatusCode != http.StatusTooManyRequests || err != nil || after > seconds+seconds/16000+1 {
				t.Fatalf("%s, Retry-After %q", resp.Status, resp.Header.Get("Retry-After"))
			}
			if period == "day" {
				if wrong != 2 {
					t.Errorf("%d wrong ones got through beside three that were killed", wrong)
				}
				return
			}
			redistest.Eventually(t, "all five places are there again", func() bool {
				for range 5 {
					if resp := guess(t, client, both[1], "wrong"); resp.StatusCode != http.StatusUnauthorized {
						time.Sleep(time.Duration(seconds) * time.Second)
						return false
					}
				}
				return true
			})
		})
	}
}

// remaining returns what a right login is told to be left, itself included.
func remaining(t *testing.T, client *http.Client, g *gateway) string {
	t.Helper()
	return guess(t, client, g, "right").Header.Get("X-Ratelimit-Remaining")
}

// A guess whose outcome nobody knows counts: the upstream may have heard it. One that has found
// no upstream does not.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	upstream := new(logins)
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	client := newAsker(t).client
	g := serve(t, "--policy", write(t, "policy.yaml", failedLogins("100/day")), "--upstream", server.URL)
	if left := remaining(t, client, g); left != "99" {
		t.Fatalf("%s are left", left)
	}
	if resp := guess(t, client, g, "drop"); resp.StatusCode != http.StatusBadGateway {
		t.Fatalf("without an answer: %s", resp.Status)
	}
	if left := remaining(t, client, g); left != "98" {
		t.Errorf("%s are left after an upstream that has not answered", left)
	}
	hold(t, upstream, g, 1)()
	redistest.Eventually(t, "the gateway knows that the client has left", func() bool { return remaining(t, client, g) == "97" })
	// Nobody has ever listened there, so that no connection is left over.
	g = serve(t, "--policy", write(t, "policy.yaml", failedLogins("100/day")), "--upstream", "http://"+testkit.Addr(t))
	for range 3 {
		resp := guess(t, client, g, "wrong")
		if left := resp.Header.Get("X-Ratelimit-Remaining"); resp.StatusCode != http.StatusBadGateway || left != "99" {
			t.Errorf("without an upstream: %s, %s are left", resp.Status, left)
		}
	}
	late := new(logins)
	slow := httptest.NewServer(late)
	t.Cleanup(slow.Close)
	g = serve(t, "--policy", write(t, "policy.yaml", failedLogins("100/day")), "--upstream", slow.URL, "--upstream-timeout", "50ms")
	if resp := guess(t, client, g, "hold"); resp.StatusCode != http.StatusGatewayTimeout {
		t.Fatalf("without an answer in time: %s", resp.Status)
	}
	if left := guess(t, client, g, "hold").Header.Get("X-Ratelimit-Remaining"); left != "98" {
		t.Errorf("%s are left after an upstream that was late", left)
	}
}

// A WebSocket is a 101, and told by that.
func TestUpgradeOutcome(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	t.Cleanup(upstream.Close)
	g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "policy.yaml", `
version: 1
rules:
  - {name: opened, limit: 2/day, count: {status: [101]}}
  - {name: refused, limit: 1/day, count: {status: [4xx]}}
`))
	for i := range 3 {
		c, err := websocket.Dial("ws://"+g.addr+"/echo", "", g.url)
		if (err == nil) != (i < 2) {
			t.Fatalf("WebSocket %d: %v", i, err)
		}
		if err != nil {
			break
		}
		defer c.Close()
		sent, got := fmt.Sprint("message ", i), ""
		if err := websocket.Message.Send(c, sent); err != nil {
			t.Fatal(err)
		}
		if err := websocket.Message.Receive(c, &got); err != nil || got != sent {
			t.Fatalf("%q, %v, want %q", got, err, sent)
		}
	}
}

// What is sent is charged to the byte, through the gateway, and by what the upstream says.
func TestCostOfAnswers(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("bytes"))
		w.Header().Set("X-Cost", r.URL.Query().Get("cost"))
		_, _ = w.Write(make([]byte, n))
	}))
	t.Cleanup(upstream.Close)
	g := serve(t, "--upstream", upstream.URL, "--policy", write(t, "policy.yaml", `
version: 1
rules:
  - {name: told, limit: 1000/day, algorithm: fixed_window, cost: {response_header: X-Cost, max: 600}}
  - {name: egress, limit: 1000/day, algorithm: fixed_window, cost: {response_bytes: 1024}}
`))
	awayFromMidnight(t)
	for _, step := range []struct{ ask, want string }{ // what is left for one that costs nothing, itself included
		{"bytes=10240&cost=20", `200 "told";r=979 "egress";r=989`},
		{"bytes=1025&cost=0", `200 "told";r=979 "egress";r=987`},
		{"bytes=100000&cost=500", `200 "told";r=479 "egress";r=889`},
		{"bytes=0&cost=600", `429 "told";r=0 "egress";r=890`},
	} {
		_, _ = do(t, request(t, "GET", g.url+"/?"+step.ask, ""))
		redistest.Eventually(t, step.ask+" is settled: "+step.want, func() bool {
			resp, _ := do(t, request(t, "GET", g.url+"/?bytes=0&cost=0", ""))
			var told []string
			for _, one := range strings.Split(resp.Header.Get("RateLimit"), ", ") {
				told = append(told, one[:max(0, strings.LastIndex(one, ";t="))])
			}
			return fmt.Sprintf("%d %s", resp.StatusCode, strings.Join(told, " ")) == step.want
		})
	}
}
