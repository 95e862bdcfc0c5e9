package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

func TestNoRuleMatches(t *testing.T) {
	e := engine(t, `rules: [{name: a, match: /x, limit: 1/day}]`)
	for range 3 {
		if d := e.Decide(t.Context(), get("/y")); !d.Allowed || d.Results != nil || d.Exempt || d.Degraded {
			t.Fatalf("got %+v", d)
		}
	}
	if d := NewEngine(memory.New(), nil).Decide(t.Context(), get("/y")); !d.Allowed {
		t.Error("an engine without a policy refuses")
	}
}

// A request is exempt only if it is in every way to read its path.
func TestExempt(t *testing.T) {
	const rules = `
rules:
  - {name: all, limit: 1000/day}
  - {name: health, match: [GET /health, "/static/{rest...}"], exempt: true}
  - {name: vip, hosts: [vip.example.com], headers: {X-Vip: "1"}, exempt: true}`
	e := engine(t, rules)
	for path, want := range map[string]bool{
		"/health":                      true,
		"/health/":                     true,
		"//health":                     false, // to some servers that is a host
		"/health//":                    true,
		"/x/../health":                 false, // some servers do not resolve that
		"/static/a/b":                  true,
		"/api/search/..%2f..%2fhealth": false,
		"/api%2f..%2fhealth":           false,
		"/static/..%2fapi":             false,
		"/health;x=1":                  false,
		"/healthz":                     false,
	} {
		if d := e.Decide(t.Context(), get(path)); d.Exempt != want || !d.Allowed || (len(d.Results) == 0) != want {
			t.Errorf("%s: exempt %v, want %v; %+v", path, d.Exempt, want, d)
		}
	}
	for _, c := range []struct {
		host    string
		headers []string
		want    bool
	}{
		{"vip.example.com", []string{"X-Vip: 1"}, true},
		{"VIP.example.com.:8080", []string{"X-Vip: 1"}, true},
		{"vip.example.com", []string{"X-Vip: 1", "X-Vip: 1"}, true},
		{"vip.example.com", []string{"X-Vip: 1", "X-Vip: 2"}, false},
		{"vip.example.com", []string{"X-Vip: 2"}, false},
		{"vip.example.com", nil, false},
		{"example.com", []string{"X-Vip: 1"}, false},
	} {
		r := get("/api", c.headers...)
		r.Host = c.host
		if d := e.Decide(t.Context(), r); d.Exempt != c.want {
			t.Errorf("%s %v: exempt %v", c.host, c.headers, d.Exempt)
		}
	}
}

func TestHostsAndHeaders(t *testing.T) {
	e := engine(t, `
rules:
  - {name: exact, hosts: [a.example.com, "A.example.ORG"], limit: 1000/day}
  - {name: below, hosts: ["*.example.com"], limit: 1000/day}
  - {name: path, hosts: ["*.example.com"], match: /x, limit: 1000/day}
  - {name: value, headers: {x-plan: pro}, limit: 1000/day}
  - {name: any, headers: {X-Plan: "*"}, limit: 1000/day}
  - {name: both, headers: {X-Plan: pro, X-Beta: "*"}, limit: 1000/day}`)
	for _, c := range []struct{ host, path, headers, want string }{
		{"a.example.com", "/", "", "exact below"},
		{"A.Example.Com.", "/x", "", "exact below path"},
		{"a.example.org:80", "/x", "", "exact"},
		{"b.a.example.com", "/x", "", "below path"},
		{"example.com", "/x", "", ""},
		{"xexample.com", "/x", "", ""},
		{"[::1]:80", "/x", "", ""},
		{"", "/x", "", ""},
		{"", "/", "X-Plan: pro", "value any"},
		{"", "/", "X-Plan: free", "any"},
		{"", "/", "X-Plan: free|X-Plan: pro", "value any"},
		{"", "/", "X-Plan:  pro |X-Beta: 1", "value any both"},
		{"", "/", "X-Plan: PRO", "any"},
	} {
		r := get(c.path)
		r.Host = c.host
		for h := range strings.SplitSeq(c.headers, "|") {
			if name, value, found := strings.Cut(h, ": "); found {
				r.Header.Add(name, value)
			}
		}
		var got []string
		for _, res := range e.Decide(t.Context(), r).Results {
			got = append(got, res.Rule)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

// What applies out of many rules is what applies of each alone.
func TestIndexAgainstSingleRules(t *testing.T) {
	var docs []string
	for _, host := range []string{"", ", hosts: [a.test]", `, hosts: ["*.test", b.org]`, ", hosts: [c.a.test]"} {
		for _, match := range []string{"", ", match: /x", `, match: ["GET /x/{id}", /y/]`, `, match: [POST /x, "a.test/x/"]`} {
			for _, header := range []string{"", ", headers: {A: one}", `, headers: {B: "*"}`, ", headers: {A: two, B: one}"} {
				docs = append(docs, fmt.Sprintf("{name: r%d%s%s%s, limit: 1000000/day}", len(docs), host, match, header))
			}
		}
	}
	all := engine(t, "rules: ["+strings.Join(docs, ",\n")+"]")
	var single []*Engine
	for _, d := range docs {
		single = append(single, engine(t, "rules: ["+d+"]"))
	}
	applied := 0
	for _, host := range []string{"", "a.test", "A.test:81", "c.a.test", "b.org", "test"} {
		for _, path := range []string{"/", "/x", "/x/1", "/y/z", "/y%2fz", "/x/../y", "/x/1/2"} {
			for _, method := range []string{"GET", "POST"} {
				for _, headers := range []string{"", "A: one", "B: one", "A: two|B: one", "A: one|A: two|B: 2"} {
					r := request(method, path, "192.0.2.1", strings.Split(headers, "|")...)
					r.Host = host
					var got, want []string
					for _, res := range all.Decide(t.Context(), r).Results {
						got = append(got, res.Rule)
					}
					for _, e := range single {
						for _, res := range e.Decide(t.Context(), r).Results {
							want = append(want, res.Rule)
						}
					}
					if applied += len(got); !slices.Equal(got, want) {
						t.Fatalf("%s %s%s %s:\n got %v\nwant %v", method, host, path, headers, got, want)
					}
				}
			}
		}
	}
	if applied < 1000 {
		t.Errorf("only %d rules applied in all", applied)
	}
}

// A long name of a host costs no more than one as long as names may be.
func TestLongHost(t *testing.T) {
	e := engine(t, `
rules: [{name: below, hosts: ["*.example.com"], limit: 1/day}]`)
	r := get("/")
	r.Host = strings.Repeat("a.", 40_000) + "example.com:80"
	if d := e.Decide(t.Context(), r); len(d.Results) != 1 {
		t.Errorf("the end of a long host is not read: %+v", d)
	}
}
