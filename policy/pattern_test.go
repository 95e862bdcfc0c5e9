package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy/internal/paths"
)

func TestParsePattern(t *testing.T) {
	tests := []struct {
		in, method, host, segs string
		multi                  bool
	}{
		{"/", "", "", "", true},
		{"/{$}", "", "", "", false},
		{"/{rest...}", "", "", "", true},
		{"GET /health", "GET", "", "health", false},
		{"POST \t /auth/login", "POST", "", "auth|login", false},
		{"/a/", "", "", "a", true},
		{"/a/{$}", "", "", "a", false},
		{"/a/{x}/b/{_y2...}", "", "", "a||b", true},
		{"/{type}/{größe}", "", "", "|", false},
		{"/a%2Fb/100%25", "", "", "a/b|100%", false},
		{"/%2A/%3Aid/%7Bx%7D", "", "", "*|:id|{x}", false},
		{"/v1/users:batch", "", "", "v1|users:batch", false},
		{"GET Example.COM./x", "GET", "example.com", "x", false},
		{"[2001:DB8:0::1]/x", "", "2001:db8::1", "x", false},
		{"QUERY /x", "QUERY", "", "x", false},
	}
	for _, tt := range tests {
		p, err := parsePattern(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if p.text != tt.in || p.method != tt.method || p.host != tt.host || p.multi != tt.multi || strings.Join(p.segs, "|") != tt.segs {
			t.Errorf("%q is %+v", tt.in, p)
		}
	}
}

func TestParsePatternErrors(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", `there is no "/"`},
		{"GET", `there is no "/"`},
		{"example.com", `there is no "/"`},
		{"get /x", `written in capitals: "GET"`},
		{"FETCH /x", `unknown method "FETCH": use one of GET, HEAD`},
		{"GET,POST /x", "each in a pattern of its own"},
		{"* /x", "leave the method out to match all"},
		{" /x", `unknown method ""`},
		{"GET/x", "put a space between the method GET and the path"},
		{"GET POST /x", "contains ' '"},
		{"http://example.com/x", "leave out the scheme"},
		{"example.com:8080/x", "leave out the port"},
		{"[::g]/x", "is not an IPv6 address"},
		{"*.example.com/x", `write it under "hosts:"`},
		{"bücher.example/x", "xn--"},
		{"a{x}.com/x", `contains '{'`},
		{"//x", `doubled "/"`},
		{"/a//b", `doubled "/"`},
		{"/a//", `doubled "/"`},
		{"/a/../b", `contains ".."`},
		{"/a/%2E", `contains "%2E"`},
		{"/a/./b", `contains "."`},
		{"/a%zz", `as "%25"`},
		{"/100%", `as "%25"`},
		{"/a b", "write a space as %20"},
		{"/a\x00", "white space"},
		{"/a?b=c", "write a literal one as %3F"},
		{"/a#b", "write a literal one as %23"},
		{"/api/*", `"{rest...}"`},
		{"/api/**", `"{rest...}"`},
		{"/users/:id/x", `write "{id}"`},
		{"/b_{x}", "not part of one"},
		{"/{x}y", "not part of one"},
		{"/{x", "not part of one"},
		{"/x}", "not part of one"},
		{"/{{x}}", "not part of one"},
		{"/{}", "no proper name"},
		{"/{...}", "no proper name"},
		{"/{a-b}", "no proper name"},
		{"/{1}", "no proper name"},
		{"/{$...}", "no proper name"},
		{"/{x...}/y", "not at the end"},
		{"/{x...}/", "not at the end"},
		{"/{$}/y", "not at the end"},
		{"/{x}/{x}", "occurs twice"},
		{"/{x}/{x...}", "occurs twice"},
	}
	for _, tt := range tests {
		p, err := parsePattern(tt.in)
		if err == nil {
			t.Errorf("%q is taken for %+v", tt.in, p)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v; want %s", tt.in, err, tt.want)
		}
	}
	if _, err := parsePattern("/" + strings.Repeat("x/{", 1000)); len(err.Error()) > 400 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// matches reports whether any reading of the path matches, and whether all do.
func matches(t testing.TB, patternText, method, host, path string, ignoreCase bool) (some, all bool) {
	t.Helper()
	p, err := parsePattern(patternText)
	if err != nil {
		t.Fatal(err)
	}
	tr := tree{ignoreCase: ignoreCase}
	tr.add(p, 7, false)
	tr.add(p, 8, true)
	all = true
	for _, v := range paths.Readings(path, ignoreCase, new(paths.Buffer)) {
		ids := tr.lookup(nil, method, host, &v)
		some, all = some || slices.Contains(ids, 7), all && slices.Contains(ids, 8)
	}
	return some, all
}

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern, method, host, path string
		want                        bool
	}{
		{"/a", "GET", "", "/a", true},
		{"/a", "", "", "/a/", true},
		{"/a", "GET", "", "/a/b", false},
		{"/a", "GET", "", "/A", false},
		{"/a/", "GET", "", "/a", true},
		{"/a/", "GET", "", "/a/b/c", true},
		{"/a/", "GET", "", "/ab", false},
		{"/a/{$}", "GET", "", "/a/", true},
		{"/a/{$}", "GET", "", "/a", true},
		{"/a/{$}", "GET", "", "/a/b", false},
		{"/a/{x...}", "GET", "", "/a", true},
		{"/a/{x...}", "GET", "", "/a/b/c", true},
		{"/a/{x}", "GET", "", "/a/b", true},
		{"/a/{x}", "GET", "", "/a/", false},
		{"/a/{x}", "GET", "", "/a/b/c", false},
		{"/", "GET", "", "", true},
		{"/{$}", "OPTIONS", "", "*", true},
		{"/{x}", "OPTIONS", "", "*", false},
		{"GET /a", "HEAD", "", "/a", true},
		{"GET /a", "", "", "/a", true},
		{"GET /a", "get", "", "/a", true},
		{"GET /a", "POST", "", "/a", false},
		{"HEAD /a", "GET", "", "/a", false},
		{"example.com/a", "GET", "EXAMPLE.com.:8080", "/a", true},
		{"example.com/a", "GET", "www.example.com", "/a", false},
		{"example.com/a", "GET", "", "/a", false},
		{"[::1]/a", "GET", "[0:0::1]:80", "/a", true},
		{"/a", "GET", "example.com", "/a", true},
		{"/a%2fb/", "GET", "", "/a%2Fb/c", true},
	}
	for _, tt := range tests {
		if got, _ := matches(t, tt.pattern, tt.method, tt.host, tt.path, false); got != tt.want {
			t.Errorf("%q matches %s %s%s: %v", tt.pattern, tt.method, tt.host, tt.path, got)
		}
	}
}

func TestMatchIgnoreCase(t *testing.T) {
	for _, path := range []string{"/auth/login", "/AUTH/Login", "/auth/%4CoGin", "/auth/login%5C", "/Auth//LOGIN/"} {
		if some, _ := matches(t, "/Auth/login", "GET", "", path, true); !some {
			t.Errorf("%s slips past", path)
		}
	}
	if some, _ := matches(t, "/größe/ſtraße", "GET", "", "/GR%C3%96SSE/Stra%E1%BA%9Ee", true); some {
		t.Error("ß is not ss in a path")
	}
	if some, _ := matches(t, "/größe/ſtraße", "GET", "", "/GR%C3%96%E1%BA%9EE/Stra%E1%BA%9Ee", true); !some {
		t.Error("letters beyond ASCII have cases too")
	}
}

// naive is another way to match: the pattern as a regular expression.
func naive(p string) *regexp.Regexp {
	if _, path, found := strings.Cut(p, " "); found {
		p = path
	}
	p = p[strings.IndexByte(p, '/'):]
	expr := regexp.MustCompile(`/\{\w+\}`).ReplaceAllString(regexp.MustCompile(`(/|/\{\w+\.\.\.\})$`).ReplaceAllString(p, "(/.*)?"), "/[^/]+")
	return regexp.MustCompile("^" + strings.ReplaceAll(expr, "/{$}", "") + "/?$")
}

func randomPattern(r *rand.Rand) string {
	segs := []string{"/a", "/b", "/c", "/{x}", "/{y}"}
	p := []string{"", "", "GET ", "POST "}[r.IntN(4)] + []string{"", "", "h1", "h2"}[r.IntN(4)]
	seen := make(map[string]bool)
	for range r.IntN(4) {
		if s := segs[r.IntN(len(segs))]; s[1] != '{' || !seen[s] {
			p += s
			seen[s] = true
		}
	}
	ends := []string{"/", "/{$}", "/{z...}"}
	if strings.HasSuffix(p, "a") || strings.HasSuffix(p, "}") {
		ends = append(ends, "", "", "")
	}
	return p + ends[r.IntN(len(ends))]
}

func TestTreeAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for range 100 {
		var tr tree
		var texts []string
		var exprs []*regexp.Regexp
		for len(texts) < 40 {
			p, err := parsePattern(randomPattern(r))
			if err != nil {
				t.Fatal(err)
			}
			tr.add(p, len(texts), true)
			texts, exprs = append(texts, p.text), append(exprs, naive(p.text))
		}
		for range 20 {
			path := ""
			for range 1 + r.IntN(4) {
				path += []string{"/a", "/b", "/c", "/d"}[r.IntN(4)]
			}
			path += []string{"", "/"}[r.IntN(2)]
			method, host := []string{"GET", "HEAD", "POST"}[r.IntN(3)], []string{"h1", "h2:80", "h3"}[r.IntN(3)]
			var want []int32
			for i, text := range texts {
				m, rest, found := strings.Cut(text, " ")
				if !found {
					m, rest = "", text
				}
				h := rest[:strings.IndexByte(rest, '/')]
				if (m == "" || m == method || m == "GET" && method == "HEAD") && (h == "" || h == host[:2]) && exprs[i].MatchString(path) {
					want = append(want, int32(i))
				}
			}
			all := paths.Readings(path, false, new(paths.Buffer))
			got := tr.lookup(nil, method, host, &all[0])
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("%s %s%s: got %d, want %d of %q", method, host, path, got, want, texts)
			}
			hits += len(got)
		}
	}
	if hits < 1000 {
		t.Errorf("only %d hits", hits)
	}
}

// serveMuxMatches reports whether net/http, given this pattern alone, would route the request to it.
func serveMuxMatches(pattern, method, path string) (matched, valid bool) {
	defer func() {
		if recover() != nil {
			matched, valid = false, false // a pattern that ServeMux refuses
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	r, err := http.NewRequest(method, "http://example.com"+path, nil)
	if err != nil {
		return false, false
	}
	_, found := mux.Handler(r)
	return found == pattern, true
}

// FuzzPattern holds patterns to net/http: what ServeMux matches must match here too.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"/", "GET /a/{x}/b", "example.com/a/{$}", "/a%2fb/{r...}", "/a/b/", "POST /größe"} {
		for _, path := range []string{"/", "/a/y/b", "/a//b/", "/a%2Fb/c/d", "/x/../a/b/c", "/a/%62/"} {
			f.Add(s, path)
		}
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := parsePattern(text)
		if err != nil || !strings.HasPrefix(path, "/") || len(path) > 200 {
			return
		}
		method := p.method
		if method == "" {
			method = "GET"
		}
		matched, valid := serveMuxMatches(text, method, path)
		if !valid || !matched {
			return
		}
		if some, _ := matches(t, text, method, "example.com", path, false); !some {
			t.Errorf("%q matches %s for ServeMux only", text, path)
		}
	})
}

func TestLookupOfEveryPattern(t *testing.T) {
	var tr tree
	for i, s := range []string{"GET /a/{x}/b", "/", "example.com/c/", "POST /d"} {
		p, err := parsePattern(s)
		if err != nil {
			t.Fatal(err)
		}
		tr.add(p, i, true)
	}
	got := tr.lookup(nil, "GET", "example.com", &paths.Reading{Every: true})
	slices.Sort(got)
	if !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("every pattern for GET: %d", got)
	}
	if got := tr.lookup(nil, "GET", "example.com", &paths.Reading{Never: true}); got != nil {
		t.Errorf("no pattern: %d", got)
	}
}

func bigTree(tb testing.TB, n int) *tree {
	var tr tree
	for i := range n {
		text := fmt.Sprintf("POST /api/v%d/users/{id}/things%d", i%7, i)
		if i == 0 {
			text = "/api/{rest...}"
		}
		p, err := parsePattern(text)
		if err != nil {
			tb.Fatal(err)
		}
		tr.add(p, i, true)
	}
	return &tr
}

func TestLookupDoesNotAllocate(t *testing.T) {
	tr, buf, ids := bigTree(t, 100), new(paths.Buffer), make([]int32, 0, 8)
	for _, path := range []string{"/api/v2/users/alice/things9", "/api/v2/users/al%20ice/things9", "/api//x/%2e%2e/y"} {
		if n := testing.AllocsPerRun(100, func() {
			for _, v := range paths.Readings(path, true, buf) {
				ids = tr.lookup(ids[:0], "POST", "example.com:443", &v)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", path, n)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr, buf, ids := bigTree(b, n), new(paths.Buffer), make([]int32, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				v := paths.Readings("/api/v2/users/alice/things9", false, buf)
				ids = tr.lookup(ids[:0], "POST", "example.com", &v[0])
			}
			if !slices.Equal(ids, []int32{0, 9}) {
				b.Fatalf("matched %d", ids)
			}
		})
	}
}
