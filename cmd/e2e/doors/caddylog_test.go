package doors

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/internal/testkit"
)

// What Caddy has written of requests, hostile ones among them, is read as what was sent.
func TestCaddyLog(t *testing.T) {
	t.Parallel()
	caddy, err := buildCaddy()
	if err != nil {
		t.Fatal(err)
	}
	sites := []*loggedSite{
		{name: "as it is", hides: true},
		{name: "credentials", global: "log_credentials"},
		{name: "words", encoder: "{\ntime_format wall_milli\nduration_format string\n}", hides: true},
		{name: "iso", encoder: "{\ntime_format iso8601\nduration_format ns\n}", hides: true, ended: true}, // a few µs may be s in ms
		{name: "local", encoder: "{\ntime_format rfc3339_nano\ntime_local\nduration_format seconds\n}", hides: true},
		{name: "millis", encoder: "{\ntime_format unix_milli_float\nduration_format ms\n}", hides: true, ended: true},
		{name: "nanos", encoder: "{\ntime_format unix_nano\n}", hides: true},
		{name: "common", encoder: "{\ntime_format common_log\n}", hides: true},
	}
	dir, servers, blocks := t.TempDir(), "", ""
	for _, s := range sites {
		s.addr, s.log = testkit.Addr(t), filepath.Join(dir, s.name)
		servers += fmt.Sprintf("servers %s {\n%s\n}\n", s.addr, s.global)
		blocks += fmt.Sprintf("http://%s {\nbind 127.0.0.1\nlog {\noutput file %q\nformat json %s\n}\nrespond /empty 204\nrespond \"hello\" 201\n}\n",
			port(s.addr), s.log, s.encoder)
	}
	file := testkit.File(t, "Caddyfile", "{\nadmin off\npersist_config off\nauto_https off\n"+servers+"}\n"+blocks)
	process := command(caddy, "run", "--adapter", "caddyfile", "--config", file)
	process.Env = append(process.Env, "HOME="+t.TempDir())
	run(t, process, sites[0].addr)
	for _, s := range sites {
		testkit.Await(t, "Caddy listens for "+s.name, func() bool { return testkit.Listens(s.addr) })
		t.Run(s.name, s.test)
	}
}

// loggedSite is a site of Caddy with a log.
type loggedSite struct {
	name, encoder, global string
	hides, ended          bool // what it hides, and whether it knows when a request has ended
	addr, log             string
}

func (s *loggedSite) test(t *testing.T) {
	sent := hostileRequests(rand.New(rand.NewPCG(11, uint64(len(s.name)))), 120)
	began := time.Now()
	var logged []hostileRequest
	for _, r := range sent {
		if r.send(t, s.addr) {
			logged = append(logged, r)
		}
	}
	if len(logged) < len(sent)/2 {
		t.Fatalf("Caddy has taken %d of %d requests", len(logged), len(sent))
	}
	var lines [][]byte
	testkit.Await(t, "all requests are logged", func() bool {
		data, _ := os.ReadFile(s.log)
		lines = bytes.SplitAfter(data, []byte("\n"))
		lines = lines[:len(lines)-1]
		return bytes.Count(data, []byte(`"handled request"`)) >= len(logged)
	})
	ended := time.Now()
	format, err := accesslog.Detect(lines, accesslog.Options{})
	if err != nil || format.Name != "caddy" {
		t.Fatal(format, err)
	}
	var e accesslog.Entry
	for _, line := range lines {
		err := format.Parse(bytes.TrimSuffix(line, []byte("\n")), &e)
		switch {
		case errors.Is(err, accesslog.ErrSkip):
			continue
		case err != nil:
			t.Fatalf("%s: %v", line, err)
		case len(logged) == 0:
			t.Fatalf("one too many: %s", line)
		}
		want := logged[0]
		logged = logged[1:]
		want.written()
		if s.hides || want.cookie == "REDACTED" { // who sends that is not known by it
			want.cookie = ""
		}
		if got := readRequest(&e); got != want {
			t.Errorf("%s\nis read as %#v\nnot        %#v", line, got, want)
		}
		if string(e.Client) != "127.0.0.1" {
			t.Errorf("%s: the client is %q", line, e.Client)
		}
		if at := time.UnixMicro(e.Time); at.Before(began.Add(-1100*time.Millisecond)) || at.After(ended) || e.Ended && !s.ended {
			t.Errorf("%s: at %v, between %v and %v", line, at, began, ended)
		}
	}
	if len(logged) > 0 {
		t.Errorf("%d requests are not there, such as %#v", len(logged), logged[0])
	}
}

func readRequest(e *accesslog.Entry) hostileRequest {
	r := hostileRequest{
		method: string(e.Method), target: string(e.Target), host: string(e.Host), agent: string(e.UserAgent),
		referer: string(e.Referer), forwarded: string(e.Forwarded), status: e.Status, size: e.Sent,
	}
	for _, h := range e.Headers {
		switch string(h.Name) {
		case "X-Api-Key":
			r.key = string(h.Value)
		case "Cookie":
			r.cookie = string(h.Value)
		}
	}
	return r
}

// hostileRequest is what a client sends, and gets.
type hostileRequest struct {
	method, target, host, agent, referer, forwarded, key, cookie string
	status                                                       int
	size                                                         int64
}

// written makes of the texts what Caddy can write: U+FFFD for each byte that is no UTF-8.
func (r *hostileRequest) written() {
	for _, s := range []*string{&r.target, &r.agent, &r.referer, &r.forwarded, &r.key, &r.cookie} {
		*s = string([]rune(*s))
	}
}

// hostileRequests are requests with what breaks logs in every field, as far as a server takes it.
func hostileRequests(rng *rand.Rand, n int) []hostileRequest {
	pieces := []string{
		`"`, `\`, `\"`, `\\`, `'`, "-", " ", "  ", "\t", ", ", "[", "]", "{", "}", `","uri":"/forged`, `"}}`, `\u0041`, `\x22`, "%22", "%0a", "%00", "+",
		"\x80", "\xff\xfe", "é", "\u2028", "\U0001F600", "\ufeff", "a", "REDACTED", "null", "GET / HTTP/1.1", `" 200 1 "-" "-"`, "<script>", "$(id)", strings.Repeat("x", 100),
	}
	value := func() string {
		var s strings.Builder
		for range rng.IntN(6) {
			s.WriteString(pieces[rng.IntN(len(pieces))])
		}
		return strings.Trim(s.String(), " \t") // as servers do
	}
	methods := []string{"GET", "POST", "DELETE", "M-SEARCH", "get", "X!#$%&'*+.^_`|~9"}
	var all []hostileRequest
	for range n {
		r := hostileRequest{
			method: methods[rng.IntN(len(methods))], target: "/" + strings.Map(inTarget, value()), host: "h.example", agent: value(),
			referer: value(), forwarded: value(), key: value(), cookie: value(),
		}
		if rng.IntN(2) == 0 {
			r.target += "?" + strings.Map(inTarget, value())
		}
		all = append(all, r)
	}
	return all
}

func inTarget(c rune) rune {
	if c <= ' ' || c == 0x7f {
		return '+'
	}
	return c
}

// send reports whether a server takes the request, and what it answers.
func (r *hostileRequest) send(t *testing.T, addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testkit.Patience))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", r.method, r.target, r.host)
	for _, h := range [][2]string{{"User-Agent", r.agent}, {"Referer", r.referer}, {"X-Forwarded-For", r.forwarded}, {"X-Api-Key", r.key}, {"Cookie", r.cookie}} {
		if h[1] != "" {
			fmt.Fprintf(conn, "%s: %s\r\n", h[0], h[1])
		}
	}
	fmt.Fprint(conn, "\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: r.method})
	if err != nil {
		t.Fatalf("%#v: %v", r, err)
	}
	defer answer.Body.Close()
	r.status, r.size = answer.StatusCode, max(answer.ContentLength, 0)
	return answer.StatusCode != http.StatusBadRequest
}
