package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// fields are what a server is told to log.
type fields struct {
	client, user, request, referer, agent, forwarded, host string
	status                                                 uint16
	sent                                                   uint32
}

const fuzzTime = "20/Nov/2026:10:15:32 +0100"

// dash is what servers write for nothing.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// apacheEscape writes s as Apache's ap_escape_logitem is documented to.
func apacheEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case strings.IndexByte("\b\n\r\t\v", c) >= 0:
			b.WriteByte('\\')
			b.WriteByte("bnrtv"[strings.IndexByte("\b\n\r\t\v", c)])
		case c < 32 || c > 126:
			fmt.Fprintf(&b, "\\x%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func jsonEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case strings.IndexByte("\n\r\t\b\f", c) >= 0:
			b.WriteByte('\\')
			b.WriteByte("nrtbf"[strings.IndexByte("\n\r\t\b\f", c)])
		case c < 32:
			fmt.Fprintf(&b, "\\u%04X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func hashEscape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; strings.IndexByte("\"#{|}", c) >= 0 || c < 32 || c > 126 {
			fmt.Fprintf(&b, "#%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// server is one that writes fields, and how it is read.
type server struct {
	name, spec string
	raw        bool // it escapes nothing, so that a line may be one of several
	write      func(f fields) string
	differ     func(e *Entry, f fields) string
}

// servers write as their documentation says.
var servers = []server{
	{"nginx", `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for"`, false, func(f fields) string {
		x := func(s string) string { return string(nginxEscape(nil, dash(s))) }
		return fmt.Sprintf(`%s - %s [%s] "%s" %d %d "%s" "%s" "%s"`, f.client, x(f.user), fuzzTime, nginxEscape(nil, f.request), f.status, f.sent, x(f.referer), x(f.agent), x(f.forwarded))
	}, differ},
	{"nginx in another order", `[$time_iso8601] $http_user_agent | $status $body_bytes_sent $http_referer "$http_x_forwarded_for" $remote_addr "$request" $remote_user`, true, func(f fields) string {
		x := func(s string) string { return string(nginxEscape(nil, dash(s))) }
		return fmt.Sprintf(`[2026-11-20T10:15:32+01:00] %s | %d %d %s "%s" %s "%s" %s`, x(f.agent), f.status, f.sent, x(f.referer), x(f.forwarded), f.client, nginxEscape(nil, f.request), x(f.user))
	}, differ},
	{"nginx as JSON", `escape=json {"a":"$remote_addr","u":"$remote_user","t":"$time_iso8601","r":"$request","s":$status,"b":$body_bytes_sent,"f":"$http_referer","ua":"$http_user_agent","x":"$http_x_forwarded_for"}`, false,
		func(f fields) string {
			x := jsonEscape
			return fmt.Sprintf(`{"a":"%s","u":"%s","t":"2026-11-20T10:15:32+01:00","r":"%s","s":%d,"b":%d,"f":"%s","ua":"%s","x":"%s"}`,
				f.client, x(f.user), x(f.request), f.status, f.sent, x(f.referer), x(f.agent), x(f.forwarded))
		}, differ},
	{"nginx unescaped", `escape=none $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" "$http_x_forwarded_for"`, true, func(f fields) string {
		return fmt.Sprintf(`%s - %s [%s] "%s" %d %d "%s" "%s" "%s"`, f.client, f.user, fuzzTime, f.request, f.status, f.sent, f.referer, f.agent, f.forwarded)
	}, differ},
	{"Apache", `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" "%{X-Forwarded-For}i"`, false, func(f fields) string {
		x := func(s string) string { return apacheEscape(dash(s)) }
		user := x(f.user)
		if f.user == "" {
			user = `""`
		}
		return fmt.Sprintf(`%s - %s [%s] "%s" %d %d "%s" "%s" "%s"`, f.client, user, fuzzTime, apacheEscape(f.request), f.status, f.sent, x(f.referer), x(f.agent), x(f.forwarded))
	}, differ},
	{"Traefik", "traefik", true, func(f fields) string {
		return fmt.Sprintf(`%s - %s [%s] "%s" %d %d "%s" "%s" 17 "router" "http://[::1]:80" 12ms`, f.client, dash(f.user), fuzzTime, f.request, f.status, f.sent, dash(f.referer), dash(f.agent))
	}, func(e *Entry, f fields) string {
		f.forwarded = ""
		return differ(e, f)
	}},
	{"Envoy", `[%START_TIME%] "%REQ(:METHOD)% %REQ(:PATH)% %PROTOCOL%" %RESPONSE_CODE% - %BYTES_SENT% %DURATION% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(REFERER)%" "%REQ(USER)%"`, true, func(f fields) string {
		return fmt.Sprintf(`[2026-11-20T09:15:32.000Z] "%s" %d - %d 3 "%s" "%s" "%s" "%s"`, f.request, f.status, f.sent, dash(f.forwarded), dash(f.agent), dash(f.referer), dash(f.user))
	}, func(e *Entry, f fields) string {
		f.client, f.user = "", ""
		if strings.Count(f.request, " ") != 2 { // which is none of HTTP's, and is not written so
			return ""
		}
		return differ(e, f)
	}},
	{"HAProxy", "haproxy", false, func(f fields) string {
		return fmt.Sprintf(`<134>lb1 haproxy[1]: %s:33317 [20/Nov/2026:09:15:32.000] in~ s/1 10/0/30/69/+109 %d +%d - - ---- 1/1/1/1/0 0/0 {%s|%s} "%s"`,
			f.client, f.status, f.sent, hashEscape(f.agent), hashEscape(f.forwarded), hashEscape(f.request))
	}, func(e *Entry, f fields) string {
		f.user, f.referer, f.agent, f.forwarded = "", "", "", ""
		return differ(e, f)
	}},
}

// differ says in what an entry is not what was written; what reads as nothing is nothing.
func differ(e *Entry, f fields) string {
	method, target := "", ""
	if m, rest, ok := strings.Cut(f.request, " "); ok {
		if i := strings.LastIndex(rest, " HTTP/"); i > 0 && strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && m != "" {
			if strings.Contains(rest[i+1:], " ") {
				return "" // not one that can be split
			}
			method, target = m, rest[:i]
		} else {
			method, target = string(e.Method), string(e.Target) // of HTTP/0.9, or of no request
		}
	}
	for _, c := range []struct{ what, got, want string }{
		{"client", string(e.Client), f.client}, {"user", string(e.User), f.user}, {"method", string(e.Method), method}, {"target", string(e.Target), target},
		{"referer", string(e.Referer), f.referer}, {"agent", string(e.UserAgent), f.agent}, {"forwarded", string(e.Forwarded), f.forwarded},
		{"status", fmt.Sprint(e.Status), fmt.Sprint(f.status)}, {"sent", fmt.Sprint(e.Sent), fmt.Sprint(f.sent)}, {"time", fmt.Sprint(e.Time), "1795166132000000"},
	} {
		if c.want == "-" || c.want == `""` && c.what == "user" {
			c.want = ""
		}
		if c.got != c.want {
			return fmt.Sprintf("%s is %q, not %q", c.what, c.got, c.want)
		}
	}
	return ""
}

// FuzzServers has values, some by an attacker, written as servers write them, and read again: what is
// read is what was written. Where a server escapes nothing, a line may be refused, but not read wrong.
func FuzzServers(f *testing.F) {
	f.Add("", "GET / HTTP/1.1", "", "", "", "", uint16(200), uint32(612))
	f.Add("al ice", "GET /a b?c=\"d\" HTTP/1.1", "http://x/\" \"", "a \"quoted\" \\ agent\\", "198.51.100.4, 10.0.0.2", "api.example.com", uint16(429), uint32(0))
	f.Add("a [20/Nov/2026:10:15:32 +0100] ", "\x16\x03\x01\x02", "\\\" ", "x\" \"y", ", : ", "h", uint16(400), uint32(1))
	f.Add("a [20/Nov/2026:10:15:32 +0100] \"GET /forged HTTP/1.1\" 200 5 \"", "POST /login HTTP/2.0", "-", "\"\"", "} {", "{", uint16(99), uint32(1<<31))
	f.Add("-", "GET", "\\", "\\\\\"", "\\x22", "\\u0022", uint16(0), uint32(7))
	f.Add("a b", "GET /\" 200 5 \"-\" \"x HTTP/1.1", "a 5 b", "| 200 5 - \"-\" 192.0.2.1 \"GET / HTTP/1.1\" x", "1, 2 : 3", "", uint16(200), uint32(5))
	formats := make([]*Format, len(servers))
	for i, s := range servers {
		var err error
		if formats[i], err = Lookup(s.spec, Options{}); err != nil {
			f.Fatal(s.name, err)
		}
	}
	f.Fuzz(func(t *testing.T, user, request, referer, agent, forwarded, host string, status uint16, sent uint32) {
		in := fields{"2001:db8::17", user, request, referer, agent, forwarded, host, status % 1000, sent}
		var e Entry
		for i, s := range servers {
			line := []byte(s.write(in))
			kept := bytes.Clone(line)
			err := formats[i].Parse(line, &e)
			if !bytes.Equal(line, kept) {
				t.Fatalf("%s: the line is changed", s.name)
			}
			if err != nil {
				if !s.raw {
					t.Fatalf("%s: %q: %v", s.name, line, err)
				}
				continue
			}
			if what := s.differ(&e, in); what != "" {
				t.Fatalf("%s: %q: %s", s.name, line, what)
			}
		}
	})
}

// FuzzParse gives any line to any format: none crashes, and the one that is read by hand is read by the
// compiled format alike.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"testdata/nginx.log", "testdata/apache.log", "testdata/envoy.log", "testdata/others.log"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	var all []*Format
	for _, name := range []string{"haproxy", "ingress-nginx", "traefik", "istio", "envoy", "vhost_combined", "combinedio", "combined", "vhost_common", "common", servers[1].spec} {
		format, err := Lookup(name, Options{})
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, format)
	}
	slowly := &text{escapes: true, ends: true}
	slow := must(apacheFormat("combined", combinedFormat, slowly))
	slowly.headLen = 0
	byHand, err := Lookup("combined", Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var e, other Entry
		for _, format := range all {
			_ = format.Parse(line, &e)
		}
		err, otherErr := byHand.Parse(line, &e), slow.Parse(line, &other)
		got, _ := json.Marshal(tellEntry(&e, err))
		if want, _ := json.Marshal(tellEntry(&other, otherErr)); !bytes.Equal(got, want) {
			t.Fatalf("%q is\n %s (%v)\n %s (%v)", line, got, err, want, otherErr)
		}
	})
}

func TestAllocations(t *testing.T) {
	for _, s := range servers {
		f, err := Lookup(s.spec, Options{})
		if err != nil {
			t.Fatal(err)
		}
		line := []byte(s.write(fields{"2001:db8::17", "alice", "GET /a\"b HTTP/1.1", "", "a \"quoted\" \\ agent", "198.51.100.4, 10.0.0.2", "", 200, 5}))
		var e Entry
		if n := testing.AllocsPerRun(100, func() {
			if err := f.Parse(line, &e); err != nil {
				t.Fatalf("%s: %q: %v", s.name, line, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", s.name, n)
		}
	}
}

func TestFormatsThatDoNotCompile(t *testing.T) {
	for spec, want := range map[string]string{
		"$remote_addr$remote_user [$time_local]":  "nothing between $remote_addr and $remote_user",
		"$remote_addr $request":                   "does not say when",
		"$remote_addr [$time_local] $":            "no name",
		"log_format main":                         "no such", // has no variable and is a name
		"log_format main '$remote_addr":           "not closed",
		"log_format main $remote_addr":            "not in quotes",
		"escape=xml $time_local":                  "escape=xml",
		"%h%u %t":                                 "nothing between %h and %u",
		"%h %{Referer":                            "not closed",
		"%h %{%Q}t":                               "not known",
		"%h %t %":                                 "ends within",
		`LogFormat "%h %t`:                        "not closed",
		"%START_TIME% %REQ(:METHOD)%%REQ(:PATH)%": "nothing between %REQ(:METHOD)% and %REQ(:PATH)%",
		"%START_TIME(%Y%":                         "not closed",
		"%START_TIME% %PROTOCOL":                  "not closed",
		"%ci:%cp [%tr] %ft":                       "%c is not known",
		"combinde":                                `no log format "combinde"`,
		strings.Repeat("$status ", 65) + "$msec":  "66 variables",
		"$time_local$remote_addr":                 "nothing between $time_local",
	} {
		if want == "no such" {
			want = "no log format"
		}
		if _, err := Lookup(spec, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, and not %q", spec, err, want)
		}
	}
}

// Each golden log is recognized by the lines of its formats that have a name.
func TestDetect(t *testing.T) {
	for _, name := range []string{"nginx", "apache", "envoy", "others"} {
		lines, golden := fileLines(t, "testdata/"+name+".log"), fileLines(t, "testdata/"+name+".golden")
		var sample [][]byte
		format := ""
		check := func() {
			if format == "" || strings.ContainsAny(format, "$%") {
				return
			}
			if f, err := Detect(sample, Options{}); err != nil || f.Name != format {
				t.Errorf("%s is recognized as %v, %v", format, f, err)
			}
		}
		for i, line := range lines {
			if spec, ok := bytes.CutPrefix(line, []byte("format: ")); ok {
				check()
				format, sample = string(spec), nil
			} else if !strings.Contains(string(golden[i]), `"error"`) {
				sample = append(sample, line)
			}
		}
		check()
	}
	lines := hostile(100)
	for i := range 5 {
		lines[i*7] = []byte("garbage")
	}
	if f, err := Detect(lines, Options{}); err != nil || f.Name != "combined" {
		t.Error(f, err)
	}
	lines[50] = []byte("garbage")
	if _, err := Detect(lines, Options{}); err == nil || !strings.Contains(err.Error(), "combined 94 of 100") || !strings.Contains(err.Error(), "--format") {
		t.Error(err)
	}
	if _, err := Detect([][]byte{[]byte("x"), []byte("y")}, Options{}); err == nil || !strings.Contains(err.Error(), "none reads any of the first 2 lines") {
		t.Error(err)
	}
	if _, err := Detect([][]byte{{}}, Options{}); err == nil || !strings.Contains(err.Error(), "no line that tells of a request") {
		t.Error(err)
	}
}
