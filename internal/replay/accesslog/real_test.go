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
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// asked is a request to a real server, and what its log has to tell.
type asked struct {
	raw    string // as it is sent; a line of none has no fields
	fields fields
	method string
	target string
}

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":secret"))
}

// hostileRequests are those that logs are known to be broken with.
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
	// What no server reads.
	for _, raw := range []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "t3 12.1.2\n\n", "GET\r\n\r\n", "\x01\"\\ / HTTP/1.1\r\n\r\n"} {
		all = append(all, asked{raw: raw})
	}
	return all
}

// send sends a request and returns the status, and how long the body is.
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

// serving starts a server, and ends it with the test.
func serving(t *testing.T, address, zone, program string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	c := exec.Command(testkit.Program(t, program), args...)
	c.Stdout, c.Stderr = &said, &said
	c.Env = append(os.Environ(), "TZ="+zone)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", program, &said)
		}
	})
	redistest.Eventually(t, program+" listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// logged waits for the n-th line of a log.
func logged(t *testing.T, name string, n int) []byte {
	t.Helper()
	var line []byte
	redistest.Eventually(t, fmt.Sprintf("line %d is in %s", n, filepath.Base(name)), func() bool {
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

// check compares an entry to what was sent and what came back.
func (a *asked) check(t *testing.T, f *Format, line []byte, status int, body int64, begin time.Time) bool {
	t.Helper()
	var e Entry
	if err := f.Parse(line, &e); err != nil {
		t.Errorf("%q is not read: %v", line, err)
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
			t.Errorf("%q: %s is %q, not %q", line, w.what, w.got, w.want)
		}
	}
	if body >= 0 && e.Sent != body {
		t.Errorf("%q: %d bytes were sent, not %d", line, e.Sent, body)
	}
	// The servers know the time to a second or to some milliseconds.
	if at := time.UnixMicro(e.Time); at.Before(begin.Add(-2*time.Second)) || at.After(time.Now().Add(2*time.Second)) {
		t.Errorf("%q: at %v, not after %v", line, at, begin)
	}
	return true
}

// What nginx logs of hostile requests is what was sent, in each way that it escapes.
func TestNginx(t *testing.T) {
	t.Parallel()
	const variables = `'$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
		' $request_time "$http_x_forwarded_for" $host'`
	formats := map[string]string{
		"main":  `log_format main ` + variables + `;`,
		"split": `log_format split '$msec|$remote_addr:$remote_port|"$http_user_agent"|$status "$request_method $request_uri $server_protocol" ${body_bytes_sent} "$remote_user" $request_id';`,
		"json":  `log_format json escape=json '{"t":"$time_iso8601","a":"$remote_addr","u":"$remote_user","r":"$request","s":$status,"b":$body_bytes_sent,"took":$request_time,"ref":"$http_referer","ua":"$http_user_agent","x":"$http_x_forwarded_for"}';`,
		"none":  `log_format none escape=none ` + variables + `;`,
	}
	dir, address := t.TempDir(), testkit.Addr(t)
	conf := "daemon off; master_process off; pid nginx.pid; error_log error.log;\nevents {}\nhttp {\n"
	logs := "access_log combined.log combined;\n"
	for name, format := range formats {
		conf += format + "\n"
		logs += fmt.Sprintf("access_log %s.log %s;\n", name, name)
	}
	conf += logs + "client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n" +
		"large_client_header_buffers 4 16k;\nserver { listen " + address + "; location / { return 200 hello; } } }"
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	serving(t, address, "XYZ-5:30", "nginx", "-p", dir, "-e", "error.log", "-c", file)
	formats["combined"] = "combined"
	unread := 0
	for n, a := range hostileRequests() {
		begin := time.Now()
		status, body := send(t, address, a.raw)
		for name, spec := range formats {
			f, err := Lookup(spec, Options{})
			if err != nil {
				t.Fatal(err)
			}
			line := logged(t, filepath.Join(dir, name+".log"), n)
			if name == "none" {
				if err := f.Parse(line, new(Entry)); err != nil {
					unread++
					continue
				}
			}
			if status == http.StatusBadRequest { // nginx has its own address for host then
				a.fields.host = ""
			}
			a.check(t, f, line, status, body, begin)
		}
	}
	if unread == 0 || unread == len(hostileRequests()) {
		t.Errorf("without escapes %d requests are not read", unread)
	}
}

// What Apache logs of hostile requests is what was sent.
func TestApache(t *testing.T) {
	t.Parallel()
	dir, address := t.TempDir(), testkit.Addr(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	formats := map[string]string{
		"combined":       "combined",
		"common":         "common",
		"vhost_combined": "vhost_combined",
		"combinedio":     "combinedio",
		"own":            `LogFormat "%a [%{%d/%b/%Y:%T}t.%{usec_frac}t %{%z}t] \"%m %U%q %H\" %>s %B %D \"%{User-Agent}i\" \"%{X-Forwarded-For}i\" %u" own`,
		"begin":          `LogFormat "%{begin:msec}t %{us}T %{c}a:%{remote}p %h \"%r\" %>s '%{Referer}i' %b" begin`,
	}
	conf := fmt.Sprintf("ServerName localhost\nListen %s\nPidFile %[2]s/pid\nErrorLog %[2]s/error.log\nDocumentRoot %[2]s/www\nLimitRequestLine 20000\n", address, dir)
	for _, m := range []string{"mpm_event", "authz_core", "authz_user", "authn_core", "authn_file", "auth_basic"} {
		conf += fmt.Sprintf("LoadModule %s_module /usr/lib/apache2/modules/mod_%[1]s.so\n", m)
	}
	conf += "LogFormat " + fmt.Sprintf("%q common\nLogFormat %q combined\nLogFormat %q combinedio\nLogFormat %q vhost_combined\n", commonFormat, combinedFormat, combinedIOFormat, vhostCombinedFormat)
	for name, spec := range formats {
		if strings.HasPrefix(spec, "LogFormat") {
			conf += spec + "\n"
		}
		conf += fmt.Sprintf("CustomLog %s/%s.log %[2]s\n", dir, name)
	}
	conf += fmt.Sprintf("<Location /private>\nAuthType Basic\nAuthName x\nAuthUserFile %s/nobody\nRequire valid-user\n</Location>\n", dir)
	for name, text := range map[string]string{"apache.conf": conf, "nobody": "x:y\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "www"), 0o755); err != nil {
		t.Fatal(err)
	}
	serving(t, address, "XYZ+3", "apache2", "-X", "-f", filepath.Join(dir, "apache.conf"))
	for n, a := range hostileRequests() {
		begin := time.Now()
		status, body := send(t, address, a.raw)
		for name, spec := range formats {
			f, err := Lookup(spec, Options{})
			if err != nil {
				t.Fatal(err)
			}
			a, body := a, body
			a.fields.host = "" // the server's name
			if status == http.StatusBadRequest {
				if a.fields = (fields{}); name == "own" {
					continue // this shows what Apache has made of what it could not read
				}
			}
			if name == "own" { // %U is decoded
				if a.target, err = url.PathUnescape(a.target); err != nil {
					t.Fatal(err)
				}
			}
			if name == "vhost_combined" || name == "combinedio" {
				body = -1 // these count the header
			}
			a.check(t, f, logged(t, filepath.Join(dir, name+".log"), n), status, body, begin)
		}
	}
}

// What HAProxy logs of hostile requests is what was sent, as far as it goes into a message of syslog; the
// times have no zone.
func TestHAProxy(t *testing.T) {
	t.Parallel()
	syslog, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer syslog.Close()
	address, file := testkit.Addr(t), filepath.Join(t.TempDir(), "haproxy.cfg")
	conf := fmt.Sprintf("global\n log %s local0\ndefaults\n mode http\n log global\n option httplog\n timeout client 60s\n timeout server 60s\n timeout connect 60s\n timeout http-request 60s\n"+
		"frontend in\n bind %s\n capture request header User-Agent len 40\n capture request header X-Forwarded-For len 100\n capture response header Server len 20\n"+
		" http-request return status 200 content-type text/plain string hello\n", syslog.LocalAddr(), address)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	serving(t, address, "XYZ-3", "haproxy", "-db", "-f", file)
	f, err := Lookup("haproxy", Options{Zone: time.FixedZone("", 3*3600)})
	if err != nil {
		t.Fatal(err)
	}
	message := make([]byte, 1<<16)
	for _, a := range hostileRequests() {
		begin := time.Now()
		status, _ := send(t, address, a.raw)
		if err := syslog.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		var line []byte
		for { // what the server says of itself, and of who looked whether it listens
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
