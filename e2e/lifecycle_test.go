package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limited is a policy whose one limit can be read off RateLimit-Policy.
func limited(n int) string {
	return fmt.Sprintf("version: 1\nrules:\n  - {name: r, limit: %d/day, algorithm: fixed_window}\n", n)
}

const broken = "version: 1\nrules:\n  - name: r\n    limt: 5/day\n"

// inForce returns what clients are told of the policy.
func inForce(t *testing.T, g *gateway) string {
	t.Helper()
	resp, _ := do(t, request(t, "GET", g.url+"/health", ""))
	return resp.Header.Get("RateLimit-Policy")
}

func wantInForce(t *testing.T, g *gateway, n int) {
	t.Helper()
	if got, want := inForce(t, g), fmt.Sprintf(`"r";q=%d;w=86400`, n); got != want {
		t.Errorf("the policy in force is %s, want %s", got, want)
	}
}

func loaded(r record) bool  { return r.Msg == "policy loaded" }
func refused(r record) bool { return strings.HasPrefix(r.Msg, "policy refused") }

// The ways in which people and programs change files.
var changes = map[string]func(t *testing.T, path, content string){
	"written in place": overwrite,
	"renamed over": func(t *testing.T, path, content string) {
		overwrite(t, path+".new", content)
		rename(t, path+".new", path)
	},
	"moved away, then written": func(t *testing.T, path, content string) {
		rename(t, path, path+"~")
		overwrite(t, path, content)
	},
	"removed, then written": func(t *testing.T, path, content string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		overwrite(t, path, content)
	},
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func TestReloadOnChange(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, "policy.yaml", limited(100))
			g := serve(t, "--policy", path, "--upstream", "sample")
			wantInForce(t, g, 100)

			change(t, path, limited(200))
			g.await("the change is seen", loaded)
			wantInForce(t, g, 200)

			g.forget()
			change(t, path, broken)
			r := g.await("the broken one is seen", refused)
			if want := path + ":4: "; !strings.HasPrefix(r.Problem, want) || !strings.Contains(r.Problem, `"limit"`) {
				t.Errorf("the log says %q, want it to begin with %s and to name the mend", r.Problem, want)
			}
			wantInForce(t, g, 200)

			g.forget()
			change(t, path, limited(300))
			g.await("the mend is seen", loaded)
			wantInForce(t, g, 300)
		})
	}
}

// Kubernetes mounts a ConfigMap as a link to a link, and turns the one in the middle.
func TestReloadOnLinkTurned(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := func(target, name string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for i, n := range []int{100, 200, 300} {
		version := filepath.Join(dir, fmt.Sprint("..v", i))
		if err := os.Mkdir(version, 0o700); err != nil {
			t.Fatal(err)
		}
		overwrite(t, filepath.Join(version, "policy.yaml"), limited(n))
	}
	link("..v0", "..data")
	link("..data/policy.yaml", "policy.yaml")
	g := serve(t, "--policy", filepath.Join(dir, "policy.yaml"), "--upstream", "sample")
	wantInForce(t, g, 100)
	for i, n := range []int{200, 300} {
		g.forget()
		link(fmt.Sprint("..v", i+1), "..data_tmp")
		rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
		g.await("the turn is seen", loaded)
		wantInForce(t, g, n)
	}
}

// A link to a file elsewhere, which is written in place.
func TestReloadOnChangeBehindLink(t *testing.T) {
	t.Parallel()
	target := write(t, "target.yaml", limited(100))
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	g := serve(t, "--policy", path, "--upstream", "sample")
	wantInForce(t, g, 100)
	overwrite(t, target, limited(200))
	g.await("the change is seen", loaded)
	wantInForce(t, g, 200)
}

func TestReloadOnHangup(t *testing.T) {
	t.Parallel()
	path := write(t, "policy.yaml", limited(100))
	g := serve(t, "--policy", path, "--upstream", "sample")
	inForce(t, g)
	g.signal(syscall.SIGHUP)
	g.await("the same policy is loaded again", loaded)
	// What was counted stays.
	if resp, _ := do(t, request(t, "GET", g.url+"/health", "")); !strings.HasPrefix(resp.Header.Get("RateLimit"), `"r";r=98;`) {
		t.Errorf("RateLimit: %s, want 98 to remain", resp.Header.Get("RateLimit"))
	}
	g.forget()
	rename(t, path, path+"~")
	g.signal(syscall.SIGHUP)
	g.await("it is missed", func(r record) bool {
		return r.Msg == "policy cannot be read, the old one stays" && strings.Contains(r.Error, path)
	})
	wantInForce(t, g, 100)
}

// A limit that begins anew because of a reload is named in the log, and another is not.
func TestReloadBeginsAnew(t *testing.T) {
	t.Parallel()
	const content = "version: 1\nrules:\n  - {name: r, limit: %s}\n  - {name: same, limit: 9/day}\n"
	path := write(t, "policy.yaml", fmt.Sprintf(content, "100/day"))
	g := serve(t, "--policy", path, "--upstream", "sample")
	overwrite(t, path, fmt.Sprintf(content, "200/day"))
	g.await("the log names it", func(r record) bool {
		return strings.HasPrefix(r.Msg, "limit begins anew") && r.Rule == "r" && r.Was == "100/day burst 100 (token_bucket)"
	})
	g.await("the change is seen", loaded)
	if strings.Contains(g.log(), `"rule":"same"`) {
		t.Error("the log names a limit that has not changed")
	}
}

// A reload while requests come loses none of them and none of the counts.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	const clients, each = 4, 100
	path := write(t, "policy.yaml", limited(100_000))
	g := serve(t, "--policy", path, "--upstream", "sample")
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range each {
				resp, err := http.Get(g.url + "/health")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					t.Errorf("%s, %v", resp.Status, err)
				}
				resp.Body.Close()
			}
		})
	}
	for range 5 {
		g.forget()
		g.signal(syscall.SIGHUP)
		g.await("it is loaded again", loaded)
	}
	all.Wait()
	resp, _ := do(t, request(t, "GET", g.url+"/health", ""))
	if got, want := resp.Header.Get("RateLimit"), fmt.Sprintf(`"r";r=%d;`, 100_000-clients*each-1); !strings.HasPrefix(got, want) {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
}

// Requests that have begun end, new ones go elsewhere, and nothing is lost.
func TestDrain(t *testing.T) {
	t.Parallel()
	const inFlight = 20
	var arrived sync.WaitGroup
	arrived.Add(inFlight)
	answer := make(chan struct{})
	g := before(t, func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		<-answer
		fmt.Fprint(w, "done")
	})
	var clients sync.WaitGroup
	for range inFlight {
		clients.Go(func() {
			resp, err := http.Get(g.url)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "done" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	arrived.Wait()
	g.signal(syscall.SIGTERM)
	g.awaitStatus(g.admin+"/readyz", http.StatusServiceUnavailable)
	if status, _ := get(t, g.admin+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d while draining", status)
	}
	close(answer)
	clients.Wait()
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Who has connected before is answered, at each door that speaks HTTP.
func TestDrainAnswersWhoHasConnected(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--check", "127.0.0.1:0", "--policy", "example")
	check := g.await("sluice serves", func(r record) bool { return r.Check != "" }).Check
	var early []net.Conn
	for _, addr := range []string{g.addr, check} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		early = append(early, c)
		get(t, "http://"+addr+"/healthz") // connections are accepted in their order
	}
	g.signal(syscall.SIGTERM)
	g.awaitStatus(g.admin+"/readyz", http.StatusServiceUnavailable)
	for _, c := range early {
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	for _, c := range early {
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 ") {
			t.Errorf("%s answers %q: %v", c.RemoteAddr(), line, err)
		}
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What somebody asks of the admin address ends after the doors have drained, and streams are let go.
func TestDrainAdmin(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--policy", "example", "--drain-timeout", "80s")
	stream, err := http.Get(g.admin + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	addr := strings.TrimPrefix(g.admin, "http://")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const body = `{"method": "GET", "url": "/"}`
	fmt.Fprintf(c, "POST /v1/explain HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body[:5])
	// Connections are accepted in their order, and this is one of its own.
	later := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := later.Get(g.admin + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	g.signal(syscall.SIGTERM)
	g.await("it drains", func(r record) bool { return r.Msg == "draining" })
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		other, err := net.Dial("tcp", addr)
		if err != nil {
			break // nobody new is taken
		}
		other.Close()
		if time.Now().After(end) {
			t.Fatal("the admin address does not drain")
		}
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	fmt.Fprint(c, body[5:])
	if line, err := bufio.NewReader(c).ReadString('\n'); !strings.HasPrefix(line, "HTTP/1.1 200 ") {
		t.Errorf("a question under way gets %q, %v", line, err)
	}
	if code := g.wait(); code != 0 || strings.Contains(g.log(), "requests were cut off") {
		t.Errorf("exit code %d, or something was cut off", code)
	}
}

// What does not end in time is cut.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	g := before(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}, "--drain-timeout", "100ms")
	cut := make(chan error, 1)
	go func() {
		resp, err := http.Get(g.url)
		if err == nil {
			resp.Body.Close()
		}
		cut <- err
	}()
	<-arrived
	g.signal(syscall.SIGINT)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := <-cut; err == nil {
		t.Error("a request that never ends has got an answer")
	}
	g.await("it is said", func(r record) bool { return r.Msg == "requests were cut off" })
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	taken := httptest.NewServer(http.NotFoundHandler())
	defer taken.Close()
	addr := taken.Listener.Addr().String()
	for _, flag := range []string{"--proxy", "--admin"} {
		code, stderr := run(t, "serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0", flag, addr)
		if code != 1 || !strings.Contains(stderr, flag+": listen tcp "+addr) || !strings.Contains(stderr, "stop what listens there") {
			t.Errorf("%s: exit code %d, %s", flag, code, stderr)
		}
	}
}
