//go:build long

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/synced"
)

// consistencyPhase is how long a phase of these tests takes. "make consistency" sets it to a minute.
var consistencyPhase = 2 * time.Second

func init() {
	if d, err := time.ParseDuration(os.Getenv("SLUICE_CONSISTENCY")); err == nil {
		consistencyPhase = d
	}
}

const (
	perSecond, atOnce = 150, 60
	consistencyRules  = `
version: 1
rules:
  - {name: leased, match: /leased, limit: 150/second burst 60, consistency: leased, on_error: deny}
  - {name: synced, match: /synced, limit: 150/second burst 60, consistency: synced, on_error: deny}
  - {name: strict, match: /strict, limit: 150/second burst 60, consistency: strict, on_error: deny}
`
)

var consistencyPaths = []string{"/strict", "/leased", "/synced"}

// passed is a request that has reached the upstream. The gateway let it pass at some time between sent and arrived.
type passed struct{ sent, arrived int64 }

// gate is an upstream that records the requests that reach it.
type gate struct {
	mu  sync.Mutex
	all map[string][]passed // by path
}

const sentField = "X-Sent"

// clock returns the time since the start of the tests, in nanoseconds.
func (*gate) clock() int64 { return int64(time.Since(consistencyBegan)) }

var consistencyBegan = time.Now()

func (u *gate) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	sent, err := strconv.ParseInt(r.Header.Get(sentField), 10, 64)
	if err != nil {
		panic(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all[r.URL.Path] = append(u.all[r.URL.Path], passed{sent, u.clock()})
}

// arrivals returns the requests for a path that have reached the upstream.
func (u *gate) arrivals(path string) []passed {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.all[path])
}

// excess returns the number of requests for a path that have passed, and the most units by which they exceeded the
// limit in any period. A request that was sent and has arrived within a period was let pass within it.
func (u *gate) excess(path string) (n int, most float64) {
	all := u.arrivals(path)
	slices.SortFunc(all, func(a, b passed) int { return int(b.sent - a.sent) })
	var arrived []int64 // of p and the requests that were sent after it, sorted
	most = -atOnce
	for _, p := range all {
		i, _ := slices.BinarySearch(arrived, p.arrived)
		arrived = slices.Insert(arrived, i, p.arrived)
		for n, at := range arrived {
			most = max(most, float64(n+1)-atOnce-perSecond*time.Duration(at-p.sent).Seconds())
		}
	}
	return len(all), most
}

// askers are clients of gateways. Each sends its next request a pause after the last answer.
type askers struct {
	upstream *gate
	client   *http.Client
	running  sync.WaitGroup
	stop     chan struct{}
}

func (c *askers) ask(g *gateway, path string, pause time.Duration) {
	c.running.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(pause):
			}
			r, err := http.NewRequest("GET", g.URL+path, nil)
			if err != nil {
				panic(err)
			}
			r.Header.Set(sentField, strconv.FormatInt(c.upstream.clock(), 10))
			if resp, err := c.client.Do(r); err == nil { // else the gateway has been killed
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
	})
}

// newAskers starts a gateway for each program, and clients of each gateway. The gateways share a store. A program, if
// it is not nil, is the command that starts the gateway.
func newAskers(t *testing.T, server *redistest.Server, programs ...[]string) (*askers, []*gateway) {
	t.Helper()
	upstream := &gate{all: map[string][]passed{}}
	target := httptest.NewServer(upstream)
	t.Cleanup(target.Close)
	c := &askers{upstream: upstream, client: newClient(t), stop: make(chan struct{})}
	rules := testkit.File(t, "policy.yaml", consistencyRules)
	var all []*gateway
	for _, program := range programs {
		args := []string{"--policy", rules, "--upstream", target.URL, "--store", server.URL()}
		if os.Getenv("SLUICE_CONSISTENCY") == "" { // in the short form, a busy machine must not look like a fault
			args = append(args, "--store-timeout", "2s")
		}
		g := testkit.StartWith(t, func(*exec.Cmd) {}, program, args...)
		g.AwaitStatus(g.Admin+"/readyz", http.StatusOK)
		all = append(all, g)
	}
	for _, g := range all {
		for _, path := range consistencyPaths {
			for range 3 {
				c.ask(g, path, 20*time.Millisecond)
			}
		}
	}
	return c, all
}

// end waits until each limit was used up at least once, and ends the load.
func (c *askers) end(t *testing.T) {
	t.Helper()
	for _, path := range consistencyPaths {
		testkit.Await(t, "a burst has passed", func() bool { return len(c.upstream.arrivals(path)) >= atOnce })
	}
	close(c.stop)
	c.running.Wait()
}

// mostAbove returns the number of units by which processes may exceed the limit of a path. forgotten is how often the
// store has lost all of its counts: each time adds a burst, and the units that were reserved or known before. lost is
// how often counts were lost before they reached the store.
func mostAbove(t *testing.T, path string, processes, forgotten, lost int) float64 {
	t.Helper()
	l, err := sluice.ParseLimit("150/second burst 60")
	if err != nil {
		t.Fatal(err)
	}
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	excess := float64(synced.Excess(p, processes))
	switch path {
	case "/strict":
		return float64(forgotten * atOnce)
	case "/leased":
		return float64(forgotten * (atOnce + atOnce/4))
	}
	each := excess / float64(processes-1)
	return excess + float64(forgotten)*(atOnce+excess) + float64(lost*processes)*each
}

func (c *askers) judge(t *testing.T, processes, forgotten, lost int) {
	t.Helper()
	for _, path := range consistencyPaths {
		n, most := c.upstream.excess(path)
		may := mostAbove(t, path, processes, forgotten, lost)
		t.Logf("%s: %d have passed, at most %.1f above the limit, want at most %.0f", path, n, most, may)
		if most > may {
			t.Errorf("%s: %.1f above the limit, want at most %.0f", path, most, may)
		}
	}
}

// Four gateways together exceed no strict or leased limit, unless the store loses its counts, and exceed a synced limit
// by no more than mostAbove returns, even if the store or a gateway fails.
func TestLongConsistency(t *testing.T) {
	for name, test := range map[string]struct {
		fault           func(server *redistest.Server, all []*gateway)
		forgotten, lost int // see mostAbove
	}{
		"none": {fault: func(*redistest.Server, []*gateway) { time.Sleep(consistencyPhase) }},
		// The counts on their way to the frozen store are lost, and so are the counts that only the killed gateway had.
		"store frozen, gateway killed": {lost: 2, fault: func(server *redistest.Server, all []*gateway) {
			server.Freeze()
			time.Sleep(time.Second)
			server.Thaw()
			time.Sleep(consistencyPhase / 2)
			all[0].Signal(syscall.SIGKILL)
			all[0].Wait()
		}},
		"store begins with nothing": {forgotten: 1, lost: 1, fault: func(server *redistest.Server, _ []*gateway) {
			server.Kill()
			time.Sleep(400 * time.Millisecond)
			server.Restart()
			time.Sleep(consistencyPhase / 2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			c, all := newAskers(t, server, nil, nil, nil, nil)
			time.Sleep(consistencyPhase / 2)
			test.fault(server, all)
			time.Sleep(consistencyPhase / 2)
			c.end(t)
			c.judge(t, 4, test.forgotten, test.lost)
		})
	}
}

// The same, with the clock of one gateway an hour ahead, and the clock of another an hour behind. Only "make
// consistency" runs this test: it builds the program and all of its packages again, which takes minutes.
func TestLongConsistencyClocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	odd := oddClock(t)
	moved := func(seconds int) []string { // the first argument that is appended, the path of the usual program, is $0
		return []string{"sh", "-c", fmt.Sprintf(`CLOCK_MOVED_BY=%d exec %s "$@"`, seconds, odd)}
	}
	c, all := newAskers(t, server, moved(3600), moved(-3600), nil, nil)
	for i, want := range []time.Duration{time.Hour, -time.Hour, 0, 0} {
		if off := clockOf(t, all[i]) - want; off.Abs() > time.Minute {
			t.Errorf("the clock of gateway %d is off by %v, want %v", i, off+want, want)
		}
	}
	time.Sleep(consistencyPhase)
	c.end(t)
	c.judge(t, 4, 0, 0)
}

// oddClock builds the program with a wall clock that is off by CLOCK_MOVED_BY seconds.
func oddClock(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(source), "sec, nsec, mono := runtimeNow()\n")
	if !found {
		t.Fatalf("%s has changed: no known line reads the wall clock", name)
	}
	dir := t.TempDir()
	moved := filepath.Join(dir, "time.go")
	overwrite(t, moved, strings.Replace(before, "import (", "import (\n\t\"syscall\"", 1)+"sec, nsec, mono := runtimeNow()\n\tsec += movedBy\n"+after+`
var movedBy = func() (seconds int64) {
	text, _ := syscall.Getenv("CLOCK_MOVED_BY")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
			continue
		}
		seconds = seconds*10 + int64(c-'0')
	}
	return sign * seconds
}()
`)
	overlay := filepath.Join(dir, "overlay.json")
	overwrite(t, overlay, fmt.Sprintf(`{"Replace": {%q: %q}}`, name, moved))
	odd := filepath.Join(dir, "sluice")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", odd, "../../cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return odd
}

// clockOf returns by how much the clock of a gateway is off, according to the Date field of a response.
func clockOf(t *testing.T, g *gateway) time.Duration {
	t.Helper()
	resp, err := http.Get(g.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		t.Fatal(err)
	}
	return time.Until(at)
}
