package doors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// nginx and the gateway with the imported policy give the same answers to the same requests.
func TestImportNginx(t *testing.T) {
	t.Parallel()
	testImports(t, "testdata/imports.txt")
}

func testImports(t *testing.T, script string) {
	for _, c := range testkit.Script(t, script) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			up := newHolding(t)
			addr := testkit.Addr(t)
			config := strings.NewReplacer("listen 80", "listen "+addr, "http://backend", "http://"+up.addr).Replace(c.Setup)
			t.Run("nginx", func(t *testing.T) {
				c.Play(t, (&importPlayer{t: t, addr: strings.TrimPrefix(nginx(t, addr, config), "http://"), up: up}).step)
			})
			t.Run("sluice", func(t *testing.T) {
				g := testkit.Serve(t, "--policy", imported(t, config), "--upstream", "http://"+up.addr)
				c.Play(t, (&importPlayer{t: t, addr: g.Addr, up: up}).step)
			})
		})
	}
}

// imported returns a file with the policy that "sluice import nginx" makes of a configuration.
func imported(t *testing.T, config string) string {
	t.Helper()
	out, err := command(testkit.Binary(t), "import", "nginx", testkit.File(t, "nginx.conf", config)).Output()
	var exit *exec.ExitError // if the configuration has no limit that can be translated
	if err != nil && !(errors.As(err, &exit) && strings.Contains(string(exit.Stderr), "no limit was translated")) {
		t.Fatal(err)
	}
	policy := testkit.File(t, "policy.yaml", string(out))
	if out, err := command(testkit.Binary(t), "validate", policy).CombinedOutput(); err != nil {
		t.Fatalf("%s\nof\n%s", out, config)
	}
	return policy
}

// holding is a backend that holds requests with the field Hold until they are released.
type holding struct {
	addr    string
	arrived chan struct{}
	free    chan struct{}
}

func newHolding(t *testing.T) *holding {
	h := &holding{arrived: make(chan struct{}, 100), free: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Hold") == "" {
			return
		}
		h.arrived <- struct{}{}
		select {
		case <-h.free:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	h.addr = s.Listener.Addr().String()
	return h
}

// importPlayer plays the steps of a script against a server.
type importPlayer struct {
	t       *testing.T
	addr    string
	up      *holding
	held    int
	results chan int // statuses of held requests
}

// step runs a step of a script, and returns the statuses.
func (p *importPlayer) step(step string) string {
	words := strings.Fields(step)
	switch words[0] {
	case "hold":
		return p.hold(times(p.t, words[1:]))
	case "queue":
		return p.queue(times(p.t, words[1:]))
	case "release":
		for range p.held {
			p.up.free <- struct{}{}
			if status := <-p.results; status != http.StatusOK {
				p.t.Errorf("a request that was held gets %d", status)
			}
		}
		p.held = 0
		return ""
	case "await":
		testkit.Await(p.t, step, func() bool { return p.send(p.t.Context(), words[1:]) == http.StatusOK })
		return ""
	}
	n, request := times(p.t, words)
	var all []int
	for range n {
		all = append(all, p.send(p.t.Context(), request))
	}
	return counted(all)
}

// times returns the number in "3 x REQUEST", or 1, and the request.
func times(t *testing.T, words []string) (n int, request []string) {
	if len(words) < 3 || words[1] != "x" {
		return 1, words
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		t.Fatal(err)
	}
	return n, words[2:]
}

// counted returns statuses in order, and counts equal ones: "2 x 200, 1 x 429".
func counted(all []int) string {
	var texts []string
	for len(all) > 0 {
		n := slices.IndexFunc(all, func(s int) bool { return s != all[0] })
		if n < 0 {
			n = len(all)
		}
		texts = append(texts, fmt.Sprintf("%d x %d", n, all[0]))
		all = all[n:]
	}
	return strings.Join(texts, ", ")
}

// hold sends requests that stay under way, and returns how many are held, and the statuses of the others.
func (p *importPlayer) hold(n int, request []string) string {
	p.results = make(chan int, 100)
	request = append(slices.Clone(request), "Hold=1")
	var answered []int
	for range n {
		go func() { p.results <- p.send(p.t.Context(), request) }()
		select {
		case <-p.up.arrived:
			p.held++
		case status := <-p.results:
			answered = append(answered, status)
		case <-time.After(testkit.Patience):
			p.t.Fatal("a request neither arrives nor is answered")
		}
	}
	return strings.Trim(fmt.Sprintf("%d held, %s", p.held, counted(answered)), ", ")
}

// queue sends requests at the same time. With "2 of 5 x /", two of five requests will wait for a long time.
func (p *importPlayer) queue(_ int, request []string) string {
	waiting, err := strconv.Atoi(request[0])
	if err != nil {
		p.t.Fatal(err)
	}
	n, request := times(p.t, request[2:])
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	answers := make(chan int, n)
	for range n {
		go func() { answers <- p.send(ctx, request) }()
	}
	var all []int
	for range n - waiting {
		select {
		case status := <-answers:
			all = append(all, status)
		case <-time.After(testkit.Patience):
			p.t.Fatalf("only %s are answered", counted(all))
		}
	}
	cancel()
	left := 0
	for range waiting {
		if status := <-answers; status == 0 {
			left++
		} else {
			all = append(all, status)
		}
	}
	slices.Sort(all)
	return fmt.Sprintf("%s, %d wait", counted(all), left)
}

// send sends a request that words describe: a method, a path, and fields such as from=127.0.0.2, host=a.test and
// X-Api-Key=k. It returns the status, or 0 without an answer.
func (p *importPlayer) send(ctx context.Context, words []string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr, nil)
	if err != nil {
		p.t.Error(err)
		return 0
	}
	from := "127.0.0.1"
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		switch {
		case strings.HasPrefix(w, "/"):
			if r.URL, err = r.URL.Parse(w); err != nil {
				p.t.Error(err)
				return 0
			}
		case w == strings.ToUpper(w):
			r.Method = w
		case name == "from":
			from = value
		case name == "host":
			r.Host = value
		default:
			r.Header.Set(name, value)
		}
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			p.t.Error(err)
		}
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}
