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

// How long a phase of these tests takes. "make consistency" makes it a minute.
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

// passed is a request that has reached the upstream: it was let pass between these times.
type passed struct{ sent, arrived int64 }

// gate is an upstream that notes what reaches it.
type gate struct {
	mu  sync.Mutex
	all map[string][]passed // by path
}

const sentField = "X-Sent"

// clock is the time by which requests are noted, in nanoseconds.
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

// arrivals returns what has reached the upstream of a path.
func (u *gate) arrivals(path string) []passed {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.all[path])
}

// excess returns the most units by which the limit was exceeded in any time: what was sent and has
// arrived within it was let pass within it.
func (u *gate) excess(path string) (n int, most float64) {
	all := u.arrivals(path)
	slices.SortFunc(all, func(a, b passed) int { return int(b.sent - a.sent) })
	var arrived []int64 // of those that were sent no earlier
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

// askers ask gateways, each path of each as often as it is answered but for a pause.
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

// newAskers starts gateways that share a store, each by way of a program if there is one, under load.
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
		if os.Getenv("SLUICE_CONSISTENCY") == "" { // in which a busy machine is not taken for a fault
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

// end ends the load, which has used up each limit at least once by then.
func (c *askers) end(t *testing.T) {
	t.Helper()
	for _, path := range consistencyPaths {
		testkit.Await(t, "a burst has passed", func() bool { return len(c.upstream.arrivals(path)) >= atOnce })
	}
	close(c.stop)
	c.running.Wait()
}

// mostAbove returns by how much a limit may be exceeded by so many processes, if the store forgets what it
// has counted so many times: a burst each time, and what was reserved or known before.
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
		t.Logf("%s: %d have passed, at most %.1f above the limit, %.0f may be", path, n, most, may)
		if most > may {
			t.Errorf("%s: %.1f above the limit, %.0f may be", path, most, may)
		}
	}
}

// What four gateways have let pass together is never above the limit where it is leased, and where
// it is synced by no more than is said, whatever becomes of the store and of one of them meanwhile.
func TestLongConsistency(t *testing.T) {
	for name, test := range map[string]struct {
		fault           func(server *redistest.Server, all []*gateway)
		forgotten, lost int // see mostAbove
	}{
		"none": {fault: func(*redistest.Server, []*gateway) { time.Sleep(consistencyPhase) }},
		// What was on its way when the store froze is lost, and what the gateway knew that was killed.
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

// The same, with a gateway whose clock is an hour ahead, and one whose clock is an hour behind. Only "make
// consistency" runs it: it builds the program and all that it needs anew, which takes minutes.
func TestLongConsistencyClocks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	odd := oddClock(t)
	moved := func(seconds int) []string { // the command has the name of the other program before its arguments
		return []string{"sh", "-c", fmt.Sprintf(`CLOCK_MOVED_BY=%d exec %s "$@"`, seconds, odd)}
	}
	c, all := newAskers(t, server, moved(3600), moved(-3600), nil, nil)
	for i, want := range []time.Duration{time.Hour, -time.Hour, 0, 0} {
		if off := clockOf(t, all[i]) - want; off.Abs() > time.Minute {
			t.Errorf("the clock of gateway %d is off by %v, and should be by %v", i, off+want, want)
		}
	}
	time.Sleep(consistencyPhase)
	c.end(t)
	c.judge(t, 4, 0, 0)
}

// oddClock builds the program with a wall clock that is moved by as many seconds as CLOCK_MOVED_BY says.
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
		t.Fatalf("%s has changed: where is the wall clock read?", name)
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

// clockOf returns by how much the clock of a gateway is off, as its answers are dated.
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
