//go:build long

package e2e

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/kernel"
)

// crowd counts the requests that it serves at once, and keeps the highest count.
type crowd struct {
	now, most, all atomic.Int64
	lasts          time.Duration // the longest time of a request
}

// ServeHTTP ends with its request: killing a gateway ends the requests that it has passed on.
func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	c.all.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	select {
	case <-r.Context().Done():
	case <-time.After(rand.N(c.lasts)):
	}
}

// 64 callers share a limit of 10 over three gateways with one Redis. Again and again, a gateway is killed, and another
// replaces it. The upstream never serves more than 10 requests at once, and in the end all permits come back.
func TestLongChaosInFlight(t *testing.T) {
	timed(t)
	const callers, places, gateways = 64, 10, 3
	server := redistest.Start(t)
	up := &crowd{lasts: 100 * time.Millisecond}
	upstream := httptest.NewServer(up)
	t.Cleanup(upstream.Close)
	// Requests that on_error allows have no permit, so on_error denies. The timeout is long, so that a busy machine
	// does not look like a fault.
	args := []string{
		"--policy", testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: all, in_flight: 10, on_error: deny}]"),
		"--upstream", upstream.URL, "--store", server.URL(), "--store-timeout", "2s",
	}
	var now [gateways]atomic.Pointer[gateway]
	for i := range now {
		now[i].Store(serve(t, args...))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var passed, refused atomic.Int64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	ask := func(g *gateway) (status, remaining int) {
		resp, err := client.Get(g.URL)
		if err != nil {
			return 0, 0 // the gateway was killed
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		remaining, _ = strconv.Atoi(resp.Header.Get("X-RateLimit-Remaining"))
		return resp.StatusCode, remaining
	}
	for i := range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				switch status, _ := ask(now[i%gateways].Load()); status {
				case http.StatusOK:
					passed.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
				time.Sleep(rand.N(50 * time.Millisecond))
			}
		})
	}
	testkit.Await(t, "all permits are taken", func() bool { return up.most.Load() >= places })
	for i := range sized(2, 6) {
		// Before each kill, gateways have allowed and denied requests, however slow the machine is.
		enough, tooMany := passed.Load()+30, refused.Load()+30
		testkit.Await(t, "30 more requests have passed, and 30 were denied", func() bool { return passed.Load() >= enough && refused.Load() >= tooMany })
		killed := now[i%gateways].Load()
		killed.Signal(syscall.SIGKILL)
		killed.Wait()
		now[i%gateways].Store(serve(t, args...))
	}
	time.Sleep(sized(time.Second, 2*time.Second))
	cancel()
	all.Wait()
	over := time.Now()
	t.Logf("%d passed, %d denied, at most %d at once", passed.Load(), refused.Load(), up.most.Load())
	if most := up.most.Load(); most != places {
		t.Errorf("%d at once at most, want exactly %d", most, places)
	}
	testkit.Await(t, "all permits are back", func() bool {
		status, remaining := ask(now[0].Load())
		return status == http.StatusOK && remaining == places-1
	})
	limit(t, "all permits are back", time.Since(over), kernel.PermitLasts+time.Second)
}

// Clients of HTTP/2 reset their streams at any moment: with the request, while it is under way, and in the middle of
// the response. Others close the connection. Their permits are released at once.
func TestLongInFlightResets(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(map[bool]string{false: "memory", true: "redis"}[shared], func(t *testing.T) {
			t.Parallel()
			const places = 10
			hang := make(chan bool)
			upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/free" {
					return
				}
				if r.URL.Path == "/begun" {
					_, _ = io.WriteString(w, "begun")
					_ = http.NewResponseController(w).Flush()
				}
				select {
				case <-r.Context().Done():
				case <-hang:
				}
			}))
			t.Cleanup(upstream.Close)
			t.Cleanup(func() { close(hang) })
			ours := testkit.NewAuthority(t)
			args := []string{"--policy", testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: all, in_flight: 10, on_error: deny}]"), "--upstream", upstream.URL}
			if shared {
				args = append(args, "--store", redistest.Start(t).URL(), "--store-timeout", "5s")
			}
			g := secure(t, ours, args...)

			// A client cancels as many streams as there are permits. Then many clients cancel streams at any moment.
			client := over(t, ours.Client(), true)
			ctx, cancel := context.WithCancel(t.Context())
			for range places {
				resp, err := client.Do(request(t, "GET", g.URL+"/begun", "").WithContext(ctx))
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatal(resp, err)
				}
				defer resp.Body.Close()
			}
			if resp, err := client.Get(g.URL + "/free"); err != nil || resp.StatusCode != http.StatusTooManyRequests {
				t.Errorf("while all permits are taken: %v, %v", resp, err)
			}
			cancel()
			var all sync.WaitGroup
			for i := range 24 {
				client := over(t, ours.Client(), true)
				all.Go(func() {
					for n := range 40 {
						path := []string{"/hang", "/begun"}[(i+n)%2]
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(8*time.Millisecond))
						if resp, err := client.Do(request(t, "GET", g.URL+path, "").WithContext(ctx)); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
						cancel()
					}
				})
			}
			all.Wait()
			// Requests that are reset at once, and connections that are closed in the middle.
			for n := range 40 {
				c, f := dialHTTP2(t, g.Addr, ours.Client())
				var b bytes.Buffer
				fields := hpack.NewEncoder(&b)
				for id := uint32(1); id < 20; id += 2 {
					b.Reset()
					for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", g.Addr}, {":path", "/begun"}} {
						_ = fields.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
					}
					_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true})
					if n%2 == 0 {
						_ = f.WriteRSTStream(id, http2.ErrCodeCancel)
					}
				}
				if n%4 < 2 {
					_ = f.WritePing(false, [8]byte{1}) // its answer comes when all frames have been read
					for {
						frame, err := f.ReadFrame()
						if err != nil {
							break // so many resets may end the connection
						}
						if p, ok := frame.(*http2.PingFrame); ok && p.IsAck() {
							break
						}
					}
				}
				c.Close()
			}
			began := time.Now()
			testkit.Await(t, "all permits are back", func() bool {
				resp, err := client.Get(g.URL + "/free")
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				return resp.StatusCode == http.StatusOK && resp.Header.Get("X-RateLimit-Remaining") == strconv.Itoa(places-1)
			})
			limit(t, "all permits are back", time.Since(began), kernel.PermitLasts/2)
		})
	}
}
