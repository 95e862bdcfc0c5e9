package accesslog

import (
	"reflect"
	"strings"
	"testing"
)

// What a format tells goes by what a sample of its lines holds.
func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		format, lines string
		want          func(*Tells) bool
	}{
		{"json", `{"ts":1795169732,"method":"GET","url":"/"}`, func(t *Tells) bool {
			return reflect.DeepEqual(*t, Tells{Query: true})
		}},
		{"json", `{"ts":1795169732.5,"method":"GET","url":"/","remote_addr":"192.0.2.1","http_x_forwarded_for":null,"request_time":0.1,"host":"h"}`, func(t *Tells) bool {
			return reflect.DeepEqual(*t, Tells{Client: true, Forwarded: true, Host: true, Query: true, Began: true, Fine: true})
		}},
		{"json", `{"ts":1795169732,"method":"GET","path":"/","size":1}`, func(t *Tells) bool { return !t.Query && t.Sent }},
		{"json", `not JSON`, func(t *Tells) bool { return t.Client && t.Query }},
		{"caddy", `{"msg":"handled request","ts":1,"request":{"remote_ip":"192.0.2.1","headers":{"Cookie":["REDACTED"],"X-A":["REDACTED"]}}}`,
			func(t *Tells) bool { return t.AnyHeader && len(t.Hidden) == 4 }},
		{"caddy", `{"msg":"handled request","ts":1,"request":{"remote_ip":"192.0.2.1","headers":{"Cookie":["a=b"]}}}`,
			func(t *Tells) bool { return t.AnyHeader && t.Hidden == nil }},
		{"traefik-json", `{"ClientAddr":"192.0.2.1:1","RequestMethod":"GET","StartUTC":"2026-11-20T10:15:32Z","request_X-Api-Key":"k","request_Referer":"r"}` + "\n" +
			`{"ClientAddr":"192.0.2.1:1","RequestMethod":"GET","StartUTC":"2026-11-20T10:15:32Z","request_X-Api-Key":"k2","request_X-B":"b"}`,
			func(t *Tells) bool {
				return reflect.DeepEqual(t.Headers, []string{"X-Api-Key", "X-B"}) && t.Referer && !t.UserAgent && !t.AnyHeader
			}},
	} {
		f, err := Lookup(c.format, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var sample [][]byte
		for line := range strings.SplitSeq(c.lines, "\n") {
			sample = append(sample, []byte(line))
		}
		if narrow := f.Narrow(sample); !c.want(&narrow.Tells) {
			t.Errorf("%s tells %+v", c.lines, narrow.Tells)
		}
	}
	cloud := cloudFront(Options{})
	next, err := cloud.Header([]byte("#Fields: date time c-ip cs-uri-stem cs(X-Api-Key) cs(Cookie)"))
	if err != nil || !reflect.DeepEqual(next.Tells, Tells{Client: true, Headers: []string{"X-Api-Key", "Cookie"}}) {
		t.Errorf("%+v, %v", next, err)
	}
	for _, bad := range []string{"#Fields: date c-ip cs-uri-stem", "#Fields:", "#Fields: date time c-ip"} {
		if _, err := cloud.Header([]byte(bad)); err == nil {
			t.Errorf("%q is a header", bad)
		}
	}
	if same, err := next.Header([]byte("#Date: 2026-11-20")); err != nil || same != next {
		t.Error("another directive changes the format")
	}
}

// A map of fields that cannot be meant is refused, and the message says what is wrong.
func TestFields(t *testing.T) {
	for _, c := range []struct{ name, path, says string }{
		{"clinet", "a", `"clinet"`}, {"client", "", "no path"}, {"client", "a b", "no path"}, {"client", strings.Repeat("a.", 20) + "b", "no path"},
		{"header:", "a", `"header:"`}, {"layout", "no time", "layout"}, {"layout", "", "layout"}, {"attr:x", strings.Repeat("x", 300), "no path"},
	} {
		_, err := Lookup("json", Options{Fields: map[string]string{c.name: c.path}})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%s: %v", c.name, c.path, err)
		}
		if _, err := Detect(nil, Options{Fields: map[string]string{c.name: c.path}}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s=%s: %v", c.name, c.path, err)
		}
	}
	for _, path := range []string{".", "..", "a.", ".a", "a..b", "a.b.c.d.e.f.g.h.i", `"`, "é"} {
		f, err := Lookup("json", Options{Fields: map[string]string{"client": path, "header:" + path + "x": path}})
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		line := `{"ts":1795169732,"method":"GET","` + strings.ReplaceAll(path, `"`, `\"`) + `":"here"}`
		if err := f.Parse([]byte(line), &e); err != nil || string(e.Client) != "here" {
			t.Errorf("%s: %q, %v", line, e.Client, err)
		}
	}
}

// Durations are of the unit that the map of fields says.
func TestUnits(t *testing.T) {
	for name, want := range map[string]int64{"duration_s": 2_500_000, "duration_ms": 2500, "duration_us": 2, "duration_ns": 0, "duration": -1} {
		f, err := Lookup("json", Options{Fields: map[string]string{name: "t.took"}})
		if err != nil {
			t.Fatal(err)
		}
		var e Entry
		if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","request_time":9,"t":{"took":2.5}}`), &e); err != nil || e.Duration != want || e.Ended != (want < 0) {
			t.Errorf("%s: %d µs, %v", name, e.Duration, err)
		}
	}
}

// A line of hostile length or depth is read or refused, and what an entry keeps of it is bounded.
func TestHuge(t *testing.T) {
	f := jsonFields(Options{})
	var e Entry
	long := strings.Repeat(`\u00e9`, 100_000)
	if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","url":"/`+long+`"}`), &e); err != nil || len(e.Target) != 200_001 {
		t.Fatal(len(e.Target), err)
	}
	if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","url":"/"}`), &e); err != nil || cap(e.own) > keep {
		t.Errorf("an entry keeps %d bytes: %v", cap(e.own), err)
	}
	many := `{"msg":"handled request","ts":1,"request":{"remote_ip":"192.0.2.1","headers":{"X-Forwarded-For":["\u0061"` +
		strings.Repeat(`,"\u0061"`, 100_000) + `],"X-A":[""` + strings.Repeat(`,"b"`, 100_000) + `]}}}`
	if err := caddy(Options{}).Parse([]byte(many), &e); err != nil || len(e.Forwarded) != 300_001 || len(e.Headers) != 100_001 {
		t.Fatal(len(e.Forwarded), len(e.Headers), err)
	}
	if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","url":"/"}`), &e); err != nil || cap(e.Headers) > keep {
		t.Errorf("an entry keeps %d fields: %v", cap(e.Headers), err)
	}
	for _, deep := range []string{strings.Repeat("[", 1e6), strings.Repeat(`{"a":`, 1e5), strings.Repeat(`{"request":`, 1e5)} {
		if err := f.Parse([]byte(`{"ts":1795169732,"method":"GET","request":`+deep), &e); err == nil {
			t.Error("it is read")
		}
	}
}
