package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// fields has the values that a server logs.
type fields struct {
	client, user, request, referer, agent, forwarded, host string
	status                                                 uint16
	sent                                                   uint32
}

const fuzzTime = "20/Nov/2026:10:15:32 +0100"

// dash returns s, or "-" if it is empty, as servers write it.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// apacheEscape escapes s as documented for Apache's ap_escape_logitem.
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

// nginxEscape appends s to b as nginx escapes it by default: quotes, backslashes, control characters and bytes beyond
// ASCII become \xXX.
func nginxEscape(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c == '"' || c == '\\' || c < 32 || c > 126 {
			b = fmt.Appendf(b, "\\x%02X", c)
		} else {
			b = append(b, c)
		}
	}
	return b
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

// server is a way to write fields, with the format that reads it.
type server struct {
	name, spec string
	raw        bool // it escapes nothing, so lines may be ambiguous
	write      func(f fields) string
	differ     func(e *Entry, f fields) string
}

// servers write lines as their documentation describes.
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
		if strings.Count(f.request, " ") != 2 { // not an HTTP request, so Envoy would not log it in this way
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

// differ describes how an entry differs from the fields that were written, or returns "". A value that a server writes
// for an empty field counts as empty.
func differ(e *Entry, f fields) string {
	method, target := "", ""
	if m, rest, ok := strings.Cut(f.request, " "); ok {
		if i := strings.LastIndex(rest, " HTTP/"); i > 0 && strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && m != "" {
			if strings.Contains(rest[i+1:], " ") {
				return "" // an ambiguous request line
			}
			method, target = m, rest[:i]
		} else {
			method, target = string(e.Method), string(e.Target) // HTTP/0.9, or not a request
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
			return fmt.Sprintf("%s is %q, want %q", c.what, c.got, c.want)
		}
	}
	return ""
}

// Fields, some of them chosen by an attacker, are the same after a server has written them and a format has read them.
// If the server escapes nothing, a line may be refused, but not misread.
func FuzzServers(f *testing.F) {
	f.Add("", "GET / HTTP/1.1", "", "", "", "", uint16(200), uint32(612))
	f.Add("al ice", "GET /a b?c=\"d\" HTTP/1.1", "http://x/\" \"", "a \"quoted\" \\ agent\\", "198.51.100.4, 10.0.0.2", "api.example.com", uint16(429), uint32(0))
	f.Add("a [20/Nov/2026:10:15:32 +0100] ", "\x16\x03\x01\x02", "\\\" ", "x\" \"y", ", : ", "h", uint16(400), uint32(1))
	f.Add("a [20/Nov/2026:10:15:32 +0100] \"GET /forged HTTP/1.1\" 200 5 \"", "POST /login HTTP/2.0", "-", "\"\"", "} {", "{", uint16(99), uint32(1<<31))
	f.Add("-", "GET", "\\", "\\\\\"", "\\x22", "\\u0022", uint16(0), uint32(7))
	f.Add("a b", "GET /\" 200 5 \"-\" \"x HTTP/1.1", "a 5 b", "| 200 5 - \"-\" 192.0.2.1 \"GET / HTTP/1.1\" x", "1, 2 : 3", "", uint16(200), uint32(5))
	formats := make([]*Format, len(servers))
	for i, s := range servers {
		formats[i] = lookup(f, s.spec, Options{})
	}
	f.Fuzz(func(t *testing.T, user, request, referer, agent, forwarded, host string, status uint16, sent uint32) {
		in := fields{"2001:db8::17", user, request, referer, agent, forwarded, host, status % 1000, sent}
		var e Entry
		for i, s := range servers {
			line := []byte(s.write(in))
			kept := bytes.Clone(line)
			err := formats[i].Parse(line, &e)
			if !bytes.Equal(line, kept) {
				t.Fatalf("%s: Parse changed the line", s.name)
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

// A request is the same after it was written as the documentation of each format describes, and read again.
func FuzzWritten(f *testing.F) {
	f.Add("GET", "/api/users/42", "x=1", "curl/8.5.0", "https://app.example.com/", "198.51.100.4, 10.0.0.2", "alice", 200, int64(612), int64(34_000))
	f.Add("get", `/a"b\c`, `"`, `a "quoted" \ agent`, "\x1b[31m\x00", "", "al ice", 0, int64(0), int64(0))
	f.Add("X", "/%2520%", "+%zz", "é\u2028\U0001F600\xff", "+", "x", "-", 999, int64(1)<<40, int64(1)<<40)
	f.Fuzz(func(t *testing.T, method, path, query, agent, referer, forwarded, user string, status int, sent, micros int64) {
		const end = 1795169732524102
		clean := func(s string) bool {
			return s != "" && s != "-" && !strings.ContainsAny(s, " \t\r\n?#") && strings.ToValidUTF8(s, "") == s
		}
		text := func(s string) bool { return s != "-" && strings.ToValidUTF8(s, "") == s && s != "REDACTED" }
		if !clean(method) || !clean(path) || path[0] != '/' || !clean(query) || !text(agent) || !text(referer) || !text(forwarded) || !text(user) ||
			status < 0 || status > 999 || sent < 0 || sent > 1e15 || micros < 0 || micros > longest {
			return // logs in these formats do not contain such values
		}
		target := path + "?" + query
		js := func(v any) []byte {
			line, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		type m = map[string]any
		escape := func(s string) string { // CloudFront escapes once, and writes "-" for an empty text
			if s == "" {
				return "-"
			}
			return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
		}
		plus := func(s string) string {
			if s == "" {
				return "-"
			}
			return strings.ReplaceAll(s, " ", "+")
		}
		plain := func(s string) bool { return !strings.ContainsAny(s, "+\t\r\n") && s != " " }
		seconds := func(us int64) string { return fmt.Sprintf("%d.%06d", us/1e6, us%1e6) }
		cases := []struct {
			format string
			line   []byte
			lacks  string // fields that the format does not have
		}{
			{"caddy", js(m{"msg": "handled request", "ts": json.Number(seconds(end)), "duration": json.Number(seconds(micros)), "user_id": user,
				"size": sent, "status": status, "request": m{"remote_ip": "192.0.2.1", "method": method, "uri": target, "host": "h.example",
					"headers": m{"User-Agent": []string{agent}, "Referer": []string{referer}, "X-Forwarded-For": []string{forwarded}}}}), "id"},
			{"traefik-json", js(m{"ClientAddr": "192.0.2.1:4711", "ClientHost": "192.0.2.1", "ClientUsername": user, "DownstreamContentSize": sent,
				"DownstreamStatus": status, "Duration": micros * 1000, "RequestAddr": "h.example", "RequestMethod": method, "RequestPath": target,
				"time": "2026-11-20T11:15:32.524102+01:00", "request_User-Agent": agent, "request_Referer": referer, "request_X-Forwarded-For": forwarded}), "id"},
			{"azure", js(m{"timeStamp": "2026-11-20T10:15:32.524102Z", "properties": m{"instanceId": "appgw_2", "clientIP": "192.0.2.1", "httpMethod": method,
				"originalRequestUriWithArgs": target, "userAgent": agent, "httpStatus": status, "sentBytes": sent, "timeTaken": json.Number(seconds(micros)),
				"host": "other", "originalHost": "h.example"}}), "id referer forwarded user"},
			{"json", js(m{"msec": seconds(end), "remote_addr": "192.0.2.1", "remote_user": user, "request_method": method, "request_uri": target,
				"status": fmt.Sprint(status), "body_bytes_sent": fmt.Sprint(sent), "request_time": seconds(micros), "http_user_agent": agent,
				"http_referer": referer, "http_x_forwarded_for": forwarded, "http_host": "h.example"}), "id"},
			{"cloudfront", []byte(strings.Join([]string{"2026-11-20", "10:15:32.524102", "FRA", fmt.Sprint(sent), "192.0.2.1", method, "d1", escape(path), fmt.Sprintf("%03d", status),
				escape(referer), escape(agent), escape(query), "-", "Miss", "ID", "h.example", "https", "1", seconds(micros), escape(forwarded),
				"-", "-", "Miss", "HTTP/2.0", "-", "-"}, "\t")), "user"},
		}
		if plain(agent) && plain(user) && plain(referer) && !strings.Contains(referer, " ") && plain(path) && plain(query) {
			cases = append(cases, struct {
				format string
				line   []byte
				lacks  string
			}{"iis", fmt.Appendf(nil, "2026-11-20 10:15:32.524102 10.0.0.5 %s %s %s 443 %s 192.0.2.1 %s %s %d 0 0 %s",
				method, path, query, plus(user), plus(agent), plus(referer), status, fmt.Sprintf("%d.%03d", micros/1e3, micros%1e3)), "id forwarded host sent"})
		}
		for _, c := range cases {
			format, err := Lookup(c.format, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var e Entry
			if err := format.Parse(c.line, &e); err != nil {
				t.Fatalf("%s does not read %q: %v", c.format, c.line, err)
			}
			lacks := func(s string) bool { return strings.Contains(c.lacks, s) }
			for _, field := range []struct{ name, got, want string }{
				{"method", string(e.Method), method}, {"target", string(e.Target), target}, {"agent", string(e.UserAgent), agent},
				{"referer", string(e.Referer), referer}, {"forwarded", string(e.Forwarded), forwarded}, {"user", string(e.User), user},
				{"host", string(e.Host), "h.example"}, {"client", string(e.Client), "192.0.2.1"}, {"status", fmt.Sprint(e.Status), fmt.Sprint(status)},
				{"sent", fmt.Sprint(e.Sent), fmt.Sprint(sent)}, {"duration", fmt.Sprint(e.Duration), fmt.Sprint(micros)},
				{"time", fmt.Sprint(e.Time), fmt.Sprint(end - micros)}, {"id", string(e.ID), ""},
			} {
				if !lacks(field.name) && field.got != field.want && !(field.name == "id" && c.format == "cloudfront") {
					t.Errorf("%s of %s is %q, want %q: %q", field.name, c.format, field.got, field.want, c.line)
				}
			}
		}
	})
}
