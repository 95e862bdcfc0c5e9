package accesslog

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// asked is a request to a real server, with the values that its log must contain.
type asked struct {
	raw    string // the bytes to send
	fields fields
	method string
	target string
}

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":secret"))
}

// hostileRequests returns requests that are known to break readers of logs.
func hostileRequests() []asked {
	var all []asked
	ask := func(request string, f fields, header ...string) {
		f.request = request
		a := asked{fields: f}
		if m, rest, ok := strings.Cut(request, " "); ok {
			a.method, a.target = m, strings.TrimSuffix(rest, " HTTP/1.1")
		}
		a.raw = request + "\r\nHost: api.example.com\r\nConnection: close\r\n"
		if f.host = "api.example.com"; f.user != "" {
			a.raw += "Authorization: " + basic(f.user) + "\r\n"
		}
		for _, h := range [][2]string{{"Referer", f.referer}, {"User-Agent", f.agent}, {"X-Forwarded-For", f.forwarded}} {
			if h[1] != "" {
				a.raw += h[0] + ": " + h[1] + "\r\n"
			}
		}
		a.raw += "\r\n"
		all = append(all, a)
	}
	ask("GET /api/users/42?fields=name HTTP/1.1", fields{agent: "curl/8.5.0", referer: "https://app.example.com/"})
	ask("GET / HTTP/1.1", fields{})
	ask(`GET /a"b\c?d="e" HTTP/1.1`, fields{agent: `evil "quoted" \ agent\`, referer: `" "-" "`})
	ask("GET /%20%22%5c HTTP/1.1", fields{agent: `\x22 \" \\`, forwarded: "198.51.100.4, 10.0.0.2"})
	ask("GET /private HTTP/1.1", fields{user: "al ice"})
	ask("GET /private?x HTTP/1.1", fields{user: `a" [x] "GET /forged HTTP/1.1" 200 5 "`, agent: "b"})
	ask("GET /private?y HTTP/1.1", fields{user: `a [20/Nov/2026] `, agent: "\xd0\x9f\xd1\x80 \x1b[31m \x7f\xff"})
	ask("GET /x HTTP/1.1", fields{agent: `a" "b`, forwarded: `", "`, referer: `-`})
	ask("GET /"+strings.Repeat("a/", 3000)+" HTTP/1.1", fields{agent: strings.Repeat(`"`, 2000)})
	// These are unreadable for every server.
	for _, raw := range []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "t3 12.1.2\n\n", "GET\r\n\r\n", "\x01\"\\ / HTTP/1.1\r\n\r\n"} {
		all = append(all, asked{raw: raw})
	}
	return all
}

// send sends a request and returns the status and the length of the body.
func send(t *testing.T, address, raw string) (status int, body int64) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return resp.StatusCode, n
}

// serving starts a server, which ends with the test, with a configuration file of testdata/servers. In the file and in
// the arguments, it replaces DIR, ADDRESS, FILE, and the names in replace.
func serving(t *testing.T, file, zone string, replace map[string]string, program string, args ...string) (dir, address, conf string) {
	t.Helper()
	dir, address = t.TempDir(), testkit.Addr(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/servers/" + file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, file)
	pairs := []string{"DIR", dir, "ADDRESS", address, "FILE", path}
	for from, to := range replace {
		pairs = append(pairs, from, to)
	}
	replacer := strings.NewReplacer(pairs...)
	conf = replacer.Replace(string(text))
	if err := os.WriteFile(path, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range args {
		args[i] = replacer.Replace(args[i])
	}
	c := exec.Command(testkit.Program(t, program), args...)
	c.Env = append(os.Environ(), "TZ="+zone)
	testkit.Launch(t, c, address)
	return dir, address, conf
}

// described returns the formats that a server's configuration defines, by name. A format that has the name of a
// built-in one is looked up by this name, and any other by its definition.
func described(t *testing.T, conf, pattern string) map[string]*Format {
	t.Helper()
	all := map[string]*Format{"combined": lookup(t, "combined", Options{})}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(conf, -1) {
		if slices.Contains(Names(), m[1]) {
			m[0] = m[1]
		}
		all[m[1]] = lookup(t, m[0], Options{})
	}
	if len(all) < 5 {
		t.Fatalf("%d formats", len(all))
	}
	return all
}

// logged waits for the n-th line of a log.
func logged(t *testing.T, name string, n int) []byte {
	t.Helper()
	var line []byte
	testkit.Await(t, fmt.Sprintf("line %d is in %s", n, filepath.Base(name)), func() bool {
		data, err := os.ReadFile(name)
		if err != nil {
			return false
		}
		lines := bytes.SplitAfter(data, []byte("\n"))
		if len(lines) <= n || !bytes.HasSuffix(lines[n], []byte("\n")) {
			return false
		}
		line = bytes.TrimSuffix(lines[n], []byte("\n"))
		return true
	})
	return line
}

// check compares an entry with the request and its response.
func (a *asked) check(t *testing.T, f *Format, line []byte, status int, body int64, begin time.Time) bool {
	t.Helper()
	var e Entry
	if err := f.Parse(line, &e); err != nil {
		t.Errorf("%q is refused: %v", line, err)
		return false
	}
	want := []struct{ what, got, want string }{{"client", string(e.Client), "127.0.0.1"}, {"method", string(e.Method), a.method}, {"target", string(e.Target), a.target}, {"status", fmt.Sprint(e.Status), fmt.Sprint(status)}}
	add := func(tells bool, what string, got []byte, w string) {
		if tells {
			want = append(want, struct{ what, got, want string }{what, string(got), strings.TrimSuffix(w, "-")})
		}
	}
	add(f.Tells.User, "user", e.User, a.fields.user)
	add(f.Tells.UserAgent, "agent", e.UserAgent, a.fields.agent)
	add(f.Tells.Referer, "referer", e.Referer, a.fields.referer)
	add(f.Tells.Forwarded, "forwarded", e.Forwarded, a.fields.forwarded)
	add(f.Tells.Host && a.fields.host != "", "host", e.Host, a.fields.host)
	for _, w := range want {
		if w.got != w.want {
			t.Errorf("%q: %s is %q, want %q", line, w.what, w.got, w.want)
		}
	}
	if body >= 0 && e.Sent != body {
		t.Errorf("%q: %d bytes sent, want %d", line, e.Sent, body)
	}
	// Some servers log the time only to the second.
	if at := time.UnixMicro(e.Time); at.Before(begin.Add(-2*time.Second)) || at.After(time.Now().Add(2*time.Second)) {
		t.Errorf("%q: at %v, want a time after %v", line, at, begin)
	}
	return true
}

// Entries from nginx's logs of hostile requests have the values that were sent, for each kind of escaping. Without
// escaping, a line may be refused.
func TestNginx(t *testing.T) {
	t.Parallel()
	dir, address, conf := serving(t, "nginx.conf", "XYZ-5:30", nil, "nginx", "-p", "DIR", "-e", "error.log", "-c", "FILE")
	formats := described(t, conf, `(?ms)^log_format (\w+) .*?;$`)
	unread := 0
	for n, a := range hostileRequests() {
		begin := time.Now()
		status, body := send(t, address, a.raw)
		for name, f := range formats {
			line := logged(t, filepath.Join(dir, name+".log"), n)
			if name == "none" && f.Parse(line, new(Entry)) != nil {
				unread++
				continue
			}
			if status == http.StatusBadRequest { // nginx then logs its own address as the host
				a.fields.host = ""
			}
			a.check(t, f, line, status, body, begin)
		}
	}
	if unread == 0 || unread == len(hostileRequests()) {
		t.Errorf("%d requests without escapes are refused, want some but not all", unread)
	}
}

// Entries from Apache's logs of hostile requests have the values that were sent.
func TestApache(t *testing.T) {
	t.Parallel()
	dir, address, conf := serving(t, "apache.conf", "XYZ+3", nil, "apache2", "-X", "-f", "FILE")
	if err := os.WriteFile(filepath.Join(dir, "nobody"), []byte("x:y\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	formats := described(t, conf, `(?m)^LogFormat .* (\w+)$`)
	for n, a := range hostileRequests() {
		begin := time.Now()
		status, body := send(t, address, a.raw)
		for name, f := range formats {
			a, body := a, body
			a.fields.host = "" // Apache logs the server's name
			if status == http.StatusBadRequest {
				a.fields = fields{}
			}
			switch name {
			case "own":
				if status == http.StatusBadRequest {
					continue // this format shows how Apache interpreted an unreadable request
				}
				target, err := url.PathUnescape(a.target) // %U is decoded
				if err != nil {
					t.Fatal(err)
				}
				a.target = target
			case "vhost_combined", "combinedio":
				body = -1 // these formats also count the header
			}
			a.check(t, f, logged(t, filepath.Join(dir, name+".log"), n), status, body, begin)
		}
	}
}

// Entries from HAProxy's logs of hostile requests have the values that were sent, as far as a message of syslog can
// hold them. The times have no zone.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	syslog, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer syslog.Close()
	_, address, _ := serving(t, "haproxy.cfg", "XYZ-3", map[string]string{"SYSLOG": syslog.LocalAddr().String()}, "haproxy", "-db", "-f", "FILE")
	f := lookup(t, "haproxy", Options{Zone: time.FixedZone("", 3*3600)})
	message := make([]byte, 1<<16)
	for _, a := range hostileRequests() {
		begin := time.Now()
		status, _ := send(t, address, a.raw)
		if err := syslog.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		var line []byte
		for { // skip messages about the server itself and about connections without a request
			n, _, err := syslog.ReadFrom(message)
			if err != nil {
				t.Fatal(err)
			}
			if line = bytes.TrimSuffix(message[:n], []byte("\n")); bytes.Contains(line, []byte(`"`)) && !bytes.Contains(line, []byte(" CR-- ")) {
				break
			}
		}
		if len(a.target) > 900 {
			var e Entry
			if err := f.Parse(line, &e); err != nil || len(e.Target) < 500 || !strings.HasPrefix(a.target, string(e.Target)) {
				t.Errorf("%q: %v", line, err)
			}
			continue
		}
		a.check(t, f, line, status, -1, begin)
	}
}
