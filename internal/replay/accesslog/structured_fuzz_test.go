package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var structuredFormats = []string{"caddy", "traefik-json", "gcp", "azure", "json", "alb", "cloudfront", "iis"}

// FuzzStructured gives any line to every format: it is read or not, the same way each time, with any
// memory, and never beyond what the line and the entry hold.
func FuzzStructured(f *testing.F) {
	files, _ := filepath.Glob("testdata/structured/*.log")
	for _, file := range files {
		log, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(log) {
			f.Add(bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	formats := make([]*Format, len(structuredFormats))
	for i, name := range structuredFormats {
		format, err := Lookup(name, Options{})
		if err != nil {
			f.Fatal(err)
		}
		formats[i] = format
	}
	used := new(Entry)
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, format := range formats {
			before := bytes.Clone(line)
			first := tell(format, line, new(Entry))
			if again := tell(format, line, used); !reflect.DeepEqual(first, again) {
				t.Errorf("%s reads %q as %+v and as %+v", format.Name, line, first, again)
			}
			if !bytes.Equal(before, line) {
				t.Errorf("%s changes the line", format.Name)
			}
			if e := used; first.Error == "" && !first.Skip && (e.Status < 0 || e.Status > 999 || e.Sent < -1 || e.Duration < -1) {
				t.Errorf("%s reads %q as %+v", format.Name, line, first)
			}
			if len(line) > 0 && line[0] == '#' && format.Directives() {
				if next, err := format.Header(line); err == nil {
					tell(next, bytes.ReplaceAll(line, []byte(" "), []byte("\t")), used)
				}
			}
		}
	})
}

// FuzzWritten writes a request as the documents of each format have it, and reads it again.
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
			t.Skip()
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
		escape := func(s string) string { // as CloudFront: one level, "-" for nothing
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
					t.Errorf("%s of %s is %q, not %q: %q", field.name, c.format, field.got, field.want, c.line)
				}
			}
		}
	})
}
