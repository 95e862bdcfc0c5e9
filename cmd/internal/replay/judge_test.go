package replay

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// A rule is left out, with its overrides, if it depends on a value that one of the logs lacks.
func TestNotJudged(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := policyfile.Decode("everything.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	always := []string{"plain", "outcome", "near"}
	for _, test := range []struct {
		name  string
		tells []accesslog.Tells
		also  []string
	}{
		{"little", []accesslog.Tells{{Client: true}}, nil},
		{"combined", []accesslog.Tells{{Client: true, Query: true, UserAgent: true, Sent: true}}, []string{"agent", "query", "bytes"}},
		{"all headers", []accesslog.Tells{{Client: true, AnyHeader: true, Hidden: []string{"Cookie", "Authorization"}}}, []string{"key", "agent", "tiered", "condition", "cost", "tenants", "weighed"}},
		{"some headers", []accesslog.Tells{{Client: true, Headers: []string{"Cookie", "Authorization", "X-Cost"}}}, []string{"cookie", "token", "cost"}},
		{"a host and a user", []accesslog.Tells{{Forwarded: true, Host: true, Attributes: []string{"user"}}}, []string{"host", "hosts", "user"}},
		{"two", []accesslog.Tells{{Client: true, Query: true, Host: true}, {Client: true, Host: true}}, []string{"host", "hosts"}},
	} {
		var files []feed.File
		for _, tells := range test.tells {
			files = append(files, feed.File{Name: "a.log", Format: "some", Tells: tells})
		}
		kept, left := judgeable(doc, files)
		var names []string
		for _, r := range kept.Rules {
			names = append(names, r.Name)
		}
		want := append(slices.Clone(always), test.also...)
		slices.Sort(want)
		slices.Sort(names)
		if !slices.Equal(names, want) {
			t.Errorf("%s: the judged rules are %q, want %q", test.name, names, want)
		}
		if len(names)+len(left) != len(doc.Rules) {
			t.Errorf("%s: %d rules are judged and %d are not, of %d", test.name, len(names), len(left), len(doc.Rules))
		}
		if _, err := policy.Compile(kept); err != nil {
			t.Errorf("%s: the remaining rules are not a valid policy: %v", test.name, err)
		}
	}
	if len(doc.Overrides) != 2 || len(doc.Rules) != 22 {
		t.Error("the document was changed")
	}
}

func TestRequestOfEntry(t *testing.T) {
	doc := decode(t, `
trusted_proxies: 10.0.0.0/8
rules: [{name: r, key: ["header:User-Agent", "header:X-Id", "attr:user"], limit: 1/minute}]`)
	q := newRequests(&doc)
	for _, row := range testkit.SectionOf(t, "testdata/targets.txt", "targets and hosts").Rows(t) {
		target, host, _ := strings.Cut(row.In, " ")
		method := "GET"
		if target = testkit.Unquoted(target); target == "*" {
			method = "OPTIONS"
		}
		r := q.build(&accesslog.Entry{
			Method: []byte(method), Target: []byte(target), Host: []byte(host), UserAgent: []byte("an agent"), Forwarded: []byte("192.0.2.7"), Referer: []byte("/"),
			Headers:    []accesslog.Field{{Name: []byte("X-Id"), Value: []byte("1")}, {Name: []byte("X-Other"), Value: []byte("2")}},
			Attributes: []accesslog.Field{{Name: []byte("user"), Value: []byte("alice")}},
		}, netip.MustParseAddr("10.0.0.1"))
		if got := fmt.Sprintf("path %s, query %s, host %s, no path %v", r.Path, r.RawQuery, r.Host, r.NoPath); got != row.Want {
			t.Errorf("%s: %s, want %s", row.In, got, row.Want)
		}
		if len(r.Header) != 3 || r.Header.Get("User-Agent") != "an agent" || r.Header.Get("X-Forwarded-For") != "192.0.2.7" || r.Header.Get("X-Id") != "1" || r.Attributes["user"] != "alice" {
			t.Errorf("%s: headers %v, attributes %v", row.In, r.Header, r.Attributes)
		}
	}
	r := q.build(&accesslog.Entry{Method: []byte("GET"), Target: []byte("/")}, netip.Addr{})
	if len(r.Header)+len(r.Attributes) != 0 {
		t.Errorf("values of the previous entry remain: %v, %v", r.Header, r.Attributes)
	}
	e := &accesslog.Entry{Client: []byte("10.0.0.1"), Method: []byte("GET"), Target: []byte("/a/b?c=d"), UserAgent: []byte("an agent"), Forwarded: []byte("192.0.2.7")}
	if n := testing.AllocsPerRun(100, func() {
		peer, _ := peerOf(e)
		q.build(e, peer)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	a, b := addressOf([]byte("dsl-7.example.net")), addressOf([]byte("DSL-7.Example.net"))
	if a != b || a == addressOf([]byte("dsl-8.example.net")) {
		t.Errorf("names are not distinguished, or depend on case: %v %v", a, b)
	}
	if p, _ := a.Prefix(64); !netip.MustParsePrefix("fd00::/8").Contains(a) || p.Addr() == netip.MustParseAddr("fd00::") {
		t.Errorf("%v", a)
	}
	for text, want := range map[string]bool{"192.0.2.1": false, "2001:db8::1": false, "fe80::1%4": false, "192.0.2.1:80": false, "[2001:db8::1]:80": false, "host": true, "1.2.3": true} {
		if _, named := peerOf(&accesslog.Entry{Client: []byte(text)}); named != want {
			t.Errorf("%q: is a name: %v", text, named)
		}
	}
	if p, _ := peerOf(&accesslog.Entry{Forwarded: []byte("192.0.2.1, 198.51.100.2")}); p != netip.MustParseAddr("198.51.100.2") {
		t.Errorf("without a client, the peer is %v", p)
	}
}

// A file without lines, such as a log that has just been rotated, does not affect which rules are judged.
func TestEmptyFileBesideOthers(t *testing.T) {
	t.Parallel()
	full := logtest.Write(t, logtest.Combined(every("192.0.2.1", "/", 3, 0)))
	for _, files := range [][]string{{full, logtest.Write(t, "")}, {logtest.Write(t, "\n"), full}} {
		report, _ := replayed(t, Config{Files: files, Document: decode(t, "rules: [{name: r, key: [client_ip, \"query:q\"], limit: 1/hour}]")})
		if len(report.NotJudged) > 0 || report.Refused != 2 || report.Rules["r"].Matched != 3 {
			t.Errorf("refused %d, not judged %v, rules %v", report.Refused, report.NotJudged, report.Rules)
		}
	}
}

// For logs in whole seconds, a sliding window log with few units is made exact, and one with many units is used as it
// is.
func TestLogsInWholeSeconds(t *testing.T) {
	t.Parallel()
	for limit, exact := range map[string]bool{
		"limit: 1024/hour": true, "limit: 1025/hour": false, "limits: [1/minute, 2000/hour]": false, "limit: 1/hour, tiers: {pro: 2000/hour}": false,
	} {
		doc := decode(t, "tiers: {from: host}\nrules: [{name: r, algorithm: sliding_window_log, "+limit+"}]")
		if _, got := withExactLogs(doc); got != exact {
			t.Errorf("%s: exact is %v", limit, got)
		}
		if doc.Rules[0].Algorithm != "sliding_window_log" {
			t.Error("the document was changed")
		}
	}
}
