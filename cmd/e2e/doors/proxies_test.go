package doors

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// proxy is a proxy that queries the limiter, as in its example in deploy/.
type proxy struct {
	name, asker string
	client      string // the field in which the backend gets the client's address
	start       func(t *testing.T, limiter, backend string, replaced ...string) (url string)
	closed      []string // replacements in the example, so that nothing passes without the limiter
	without     int      // the status when requests do not pass without the limiter
	untold      bool     // the client does not get the remaining units
	once        bool     // the proxy queries only one limiter
	hyphens     bool     // the proxy drops fields by their exact names only: see its example
}

var proxies = []proxy{
	{
		name: "nginx", asker: "nginx+id", client: "X-Real-Ip", start: nginxExample("nginx/auth-request.conf"),
		closed: []string{"= @sluice_open;", "= @sluice_closed;"}, without: 503,
	},
	{
		name: "nginx-accel", asker: "nginx-accel+body+id", client: "X-Real-Ip", start: nginxExample("nginx/accel.conf"),
		closed: []string{"502 504 = @backend;", "502 504 = @sluice_closed;"}, without: 503,
	},
	{
		name: "caddy", asker: "caddy+id", client: "X-Forwarded-For", start: caddy,
		closed: []string{"respond 204", "respond 503"}, without: 503,
	},
}

// nginxExample returns a function that starts nginx with an example.
func nginxExample(name string) func(t *testing.T, limiter, backend string, replaced ...string) string {
	return func(t *testing.T, limiter, backend string, replaced ...string) string {
		addr := testkit.Addr(t)
		replaced = append(replaced, "127.0.0.1:8081", limiter, "127.0.0.1:3000", backend, "listen 80;", "listen "+addr+";")
		return nginx(t, addr, example(t, name, replaced...))
	}
}

// proxyTests run with every proxy.
var proxyTests = map[string]func(*testing.T, proxy){
	"requests": testRequests, "bodies": testBodies, "store unavailable": testStoreUnavailable, "asked twice": testAskedTwice, "same": testSame, "fields": testFields,
	"limiter stopped": func(t *testing.T, p proxy) { p.testWithout(t, testkit.Addr(t)) },
	"limiter hangs":   func(t *testing.T, p proxy) { p.testWithout(t, mute(t)) },
}

func TestProxies(t *testing.T) {
	for _, p := range proxies {
		p.test(t)
	}
}

func (p proxy) test(t *testing.T) {
	for name, test := range proxyTests {
		// Without bodies, the program rejects rules that read them. Some proxies cannot have a second limiter.
		if name == "bodies" && !strings.Contains(p.asker, "+body") || name == "asked twice" && p.once {
			continue
		}
		t.Run(p.name+"/"+name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// running starts a limiter, a backend and the proxy.
func (p proxy) running(t *testing.T, policy string, replaced ...string) (url string) {
	t.Helper()
	return p.start(t, limit(t, policy, "--auth", p.asker).Check, backend(t), replaced...)
}

// status sends a request, and fails the test if the response has another status.
func status(t *testing.T, want int, method, url, body string, header ...string) reply {
	t.Helper()
	got := ask(t, method, url, body, header...)
	if got.status != want {
		t.Errorf("%s %s %q %q: %d, want %d: %s", method, url, header, body, got.status, want, got.body)
	}
	return got
}

const threeADay = `
version: 1
rules:
  - {name: address, key: [client_ip], limit: 3/day}
`

// testRequests sends the requests of a script, and hostile ones.
func testRequests(t *testing.T, p proxy) {
	c := testkit.Script(t, "testdata/requests.txt")[0]
	url := p.running(t, "version: 1\n"+c.Setup)
	c.Play(t, func(step string) string {
		method, target, body, fields := requestOf(step)
		got := ask(t, method, url+target, body, fields...)
		text := fmt.Sprint(got.status)
		if left := p.left(got); left != "" {
			text += " left " + left
		}
		if got.seen.Method != "" {
			return fmt.Sprintf("%s backend %s %s %q", text, got.seen.Method, got.seen.Target, got.seen.Body)
		}
		if got.header.Get("Retry-After") != "" {
			text += " Retry-After"
		}
		for _, name := range []string{"Cache-Control", "Content-Type"} {
			if value := got.header.Get(name); value != "" && got.status == http.StatusTooManyRequests {
				text += " " + name + ": " + value
			}
		}
		return text + " " + got.body
	})
	// Fields that only a proxy should send, of this kind or another, have no effect if a client sends them.
	for _, field := range forged {
		name, value, _ := strings.Cut(strings.ReplaceAll(field, "\r\n", ""), ": ")
		if name == "Connection" {
			value = strings.ReplaceAll(value, "X-Real-IP, ", "X-Real-IP,")
		}
		status(t, http.StatusTooManyRequests, "POST", url+"/login", "", name, value)
		status(t, http.StatusTooManyRequests, "POST", url+"/login?id=1", "", name, value, name, value)
	}
	// A head that is too large for the limiter is not a failure of the limiter, which would let the request pass.
	for _, size := range []int{80_000, 200_000, 800_000} { // net/http takes up to 8 KiB more than --max-header
		got := ask(t, "POST", url+"/free", "the body", "X-Large", strings.Repeat("a", size))
		if got.status < 400 || got.seen.Method != "" {
			t.Errorf("with %d bytes of a field: %+v", size, got)
		}
	}
	// If the proxy accepts a head that the limiter's server rejects, the client gets 400, and never 500. If the proxy
	// drops the field, the limiter denies the request. In no case does the request pass.
	addr := strings.TrimPrefix(url, "http://")
	for _, field := range []string{"X-A: \x01", "X-A: a\x7fb", "X-\x80: a", "X A: b"} {
		got, _ := raw(t, addr, request("POST", "/login", "a", field+"\r\n"))
		if !strings.HasPrefix(got, "HTTP/1.1 400 ") && !strings.HasPrefix(got, "HTTP/1.1 429 ") {
			t.Errorf("%q: %s", field, got)
		}
	}
	testPathFields(t, addr, p.hyphens)
}

// testFields checks that clients get the fields that the policy selects, each with a value.
func testFields(t *testing.T, p proxy) {
	if p.untold {
		t.Skip("the client does not get the remaining units")
	}
	ietf, x := []string{"Ratelimit", "Ratelimit-Policy"}, []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	for fields, want := range map[string][]string{
		"fields: ietf":        ietf,
		"fields: x-ratelimit": x,
		"":                    slices.Concat(ietf, x),
	} {
		url := p.running(t, threeADay+fields)
		for _, wantStatus := range []int{200, 200, 200, 429} {
			got := status(t, wantStatus, "GET", url+"/", "")
			var names []string
			for name, values := range got.header {
				if strings.Contains(name, "Ratelimit") {
					names = append(names, name)
					if len(values) != 1 || values[0] == "" {
						t.Errorf("%s %d: %s is %q", fields, wantStatus, name, values)
					}
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, want) {
				t.Errorf("%s %d: %q, want %q", fields, wantStatus, names, want)
			}
		}
	}
	// Permits have no reset.
	url := p.running(t, "version: 1\nrules: [{name: a, key: [client_ip], in_flight: 3}]")
	if got := status(t, 200, "GET", url+"/", ""); got.header["X-Ratelimit-Reset"] != nil || got.header.Get("X-RateLimit-Limit") != "3" {
		t.Errorf("permits: %v", got.header)
	}
}

// requestOf parses a step of testdata/requests.txt, which describes the format.
func requestOf(step string) (method, target, body string, fields []string) {
	head, rest, _ := strings.Cut(step, "\n")
	method, target, _ = strings.Cut(head, " ")
	for line := range strings.SplitSeq(rest, "\n") {
		if text, found := strings.CutPrefix(line, "body "); found {
			body = text
		} else if name, value, found := strings.Cut(line, ": "); found {
			fields = append(fields, name, value)
		}
	}
	return method, target, body, fields
}

var remaining = regexp.MustCompile(`;r=(\d+)`)

// left returns the remaining units, which must be the same in all fields. If the client does not get them, the backend
// does.
func (p proxy) left(got reply) string {
	field := got.header.Get("RateLimit")
	if p.untold && got.seen.Method != "" {
		field = got.seen.Header.Get("RateLimit")
	}
	left := remaining.FindStringSubmatch(field)
	other := got.header.Get("X-RateLimit-Remaining")
	switch {
	case left == nil:
		return other
	case other != left[1] && !(p.untold && other == ""):
		return left[1] + " and " + other
	}
	return left[1]
}

// Rules that read bodies apply to the bodies that the proxy sends.
func testBodies(t *testing.T, p proxy) {
	url := p.running(t, byName)
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	if got := status(t, http.StatusOK, "POST", url+"/login", "username=alice&password=a", form...); got.seen.Body != "username=alice&password=a" {
		t.Errorf("the backend gets %+v", got.seen)
	}
	status(t, http.StatusTooManyRequests, "POST", url+"/login", "username=Alice&password=b", form...)
	status(t, http.StatusOK, "POST", url+"/login", "username=bob&password=b", form...)
	status(t, http.StatusTooManyRequests, "POST", url+"/login", `{"username":"bob"}`, "Content-Type", "application/json")
	// A body that is larger than a rule reads is rejected. On other paths it passes unchanged.
	large := strings.Repeat("a", 900_000)
	status(t, http.StatusRequestEntityTooLarge, "POST", url+"/login", "username=carol&rest="+large, form...)
	if got := status(t, http.StatusOK, "POST", url+"/other", large); got.seen.Body != large {
		t.Errorf("of %d bytes the backend gets %d", len(large), len(got.seen.Body))
	}
}

// A denial because of an unavailable store is not a failure of the limiter, which would let the request pass.
func testStoreUnavailable(t *testing.T, p proxy) {
	l := limit(t, `
version: 1
rules:
  - {name: closed, match: /closed, limit: 9/day, on_error: deny}
  - {name: open, match: /open, limit: 9/day, on_error: allow}
`, "--auth", p.asker, "--store", "redis://"+testkit.Addr(t))
	url := p.start(t, l.Check, backend(t))
	if got := status(t, http.StatusServiceUnavailable, "POST", url+"/closed", "b"); got.header.Get("Retry-After") == "" {
		t.Errorf("the client gets %v", got.header)
	}
	status(t, http.StatusOK, "POST", url+"/open", "b")
}

// testWithout runs the proxy with an address at which no limiter answers. The example decides whether requests pass.
func (p proxy) testWithout(t *testing.T, nobody string) {
	if open := p.closed != nil; open {
		url := p.start(t, nobody, backend(t))
		if got := status(t, http.StatusOK, "POST", url+"/a", "the body"); got.seen.Body != "the body" {
			t.Errorf("open: the backend gets %+v", got.seen)
		}
		status(t, http.StatusForbidden, "GET", url+"/forbidden", "")
	}
	url := p.start(t, nobody, backend(t), p.closed...)
	status(t, p.without, "POST", url+"/a", "the body")
}

// mute returns an address that accepts connections, and never sends anything.
func mute(t *testing.T) (addr string) {
	t.Helper()
	return serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
}

// serve serves connections until the test ends.
func serve(t *testing.T, connection func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				connection(c)
			}()
		}
	}()
	return l.Addr().String()
}

// The answer of the first limiter is lost, so the proxy repeats the query at the second one. The request is charged
// once.
func testAskedTwice(t *testing.T, p proxy) {
	l := limit(t, threeADay, "--auth", p.asker)
	lossy, lost := loses(t, l.Check)
	second := []string{"    # server 127.0.0.1:8082;", "    server " + l.Check + ";"}
	if p.name == "caddy" {
		second = []string{"reverse_proxy 127.0.0.1:8081", "reverse_proxy 127.0.0.1:8081 " + l.Check}
	}
	url := p.start(t, lossy, backend(t), second...)
	for _, left := range []string{"2", "1", "0"} {
		got := status(t, http.StatusOK, "POST", url+"/a", "the body")
		if p.left(got) != left || got.seen.Body != "the body" {
			t.Errorf("want %s left: %v, %+v", left, got.header, got.seen)
		}
	}
	status(t, http.StatusTooManyRequests, "POST", url+"/a", "the body")
	if lost.Load() == 0 {
		t.Error("no answer was lost")
	}
}

// loses forwards connections to an address, and loses every answer. It counts the answers in lost.
func loses(t *testing.T, to string) (addr string, lost *atomic.Int64) {
	t.Helper()
	lost = new(atomic.Int64)
	return serve(t, func(c net.Conn) {
		behind, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		defer behind.Close()
		go func() { _, _ = io.Copy(behind, c) }()
		if n, _ := behind.Read(make([]byte, 1)); n > 0 {
			lost.Add(1)
		}
	}), lost
}

// The policy decides about the same request that the backend gets.
func testSame(t *testing.T, p proxy) {
	r := read(t, p.asker, p.client)
	r.same(t, strings.TrimPrefix(p.start(t, r.limiter, r.backend), "http://"), random)
}

// random is the number of random requests.
const random = 40

const byName = `
version: 1
body_limit: 64KiB
rules:
  - {name: login, match: POST /login, key: ["body:username"], limit: 1/day, on_error: allow}
`
