package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/paths"
)

// matching reports whether any reading of the path matches, and whether all do.
func matching(t testing.TB, patternText, method, host, path string, ignoreCase bool) (some, all bool) {
	t.Helper()
	p := patternOf(t, patternText)
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
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	hits := 0
	for range 100 {
		var tr tree
		var texts []string
		var exprs []*regexp.Regexp
		for len(texts) < 40 {
			p := patternOf(t, randomPattern(r))
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
		if some, _ := matching(t, text, method, "example.com", path, false); !some {
			t.Errorf("%q matches %s for ServeMux only", text, path)
		}
	})
}

func patternOf(t testing.TB, text string) *pattern {
	t.Helper()
	p, err := parsePattern(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

func TestParsePattern(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "patterns") {
		p := patternOf(t, row.In)
		want := append(words(row.Want), "")[:4]
		if p.text != row.In || p.method != want[0] || p.host != want[1] || strings.Join(p.segs, "|") != want[2] || p.multi != (want[3] == "multi") {
			t.Errorf("%q is %+v, want %q", row.In, p, want)
		}
	}
	for _, row := range names(t, "patterns that are none") {
		if p, err := parsePattern(row.In); err == nil || !strings.Contains(err.Error(), row.Want) {
			t.Errorf("%q: %+v, %v; want %s", row.In, p, err, row.Want)
		}
	}
	if _, err := parsePattern("/" + strings.Repeat("x/{", 1000)); len(err.Error()) > 400 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "patterns that match") {
		in := words(row.In)
		r := requestOf(append([]string{"host=", "GET"}, in[1:]...))
		if got, _ := matching(t, in[0], r.Method, r.Host, r.Path, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%s: %v", row.In, got)
		}
	}
	for _, row := range names(t, "paths that match /Auth/login or /größe/ſtraße without case") {
		login, _ := matching(t, "/Auth/login", "GET", "", row.In, true)
		street, _ := matching(t, "/größe/ſtraße", "GET", "", row.In, true)
		if fmt.Sprint(login || street) != row.Want {
			t.Errorf("%s matches: %v, %v", row.In, login, street)
		}
	}
}

// Whatever a path is disguised as, a limit holds for it, and an exemption does not.
func TestDisguises(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "paths that are POST /auth/login") {
		if some, _ := matching(t, "POST /auth/login", "POST", "", row.In, false); fmt.Sprint(some) != row.Want {
			t.Errorf("%s is taken for /auth/login: %v", row.In, some)
		}
	}
	for _, path := range []string{
		"/auth/login" + strings.Repeat("/", 10_000), "/auth%2flogin;" + strings.Repeat("x", 1<<20), "/" + strings.Repeat("x/../", 10_000) + "auth/login",
		"/auth%2flogin%2f" + strings.Repeat("%2e%2f", 20_000),
	} {
		if some, _ := matching(t, "POST /auth/login", "POST", "", path, false); !some {
			t.Errorf("%.60q slips past", path)
		}
	}
	if some, _ := matching(t, "/api/search/{rest...}", "GET", "", "/api/search/../x", false); !some {
		t.Error("/api/search/../x slips past, for a server that leaves dots alone")
	}
	exempt := func(path string) bool {
		_, health := matching(t, "GET /health", "GET", "", path, false)
		_, static := matching(t, "/static/", "GET", "", path, false)
		return health || static
	}
	for _, row := range names(t, "paths that are exempt") {
		if got := exempt(row.In); fmt.Sprint(got) != row.Want {
			t.Errorf("%s is exempt: %v", row.In, got)
		}
	}
	if exempt("/static/x%2fy%2f..%2f..%2f..%2fapi;" + strings.Repeat("x", 1<<17)) {
		t.Error("a long path is exempt")
	}
}

func TestDefaultOnError(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "words of paths that close a rule while the store is away") {
		p := patternOf(t, row.In)
		if got := defaultOnError(nil, []*pattern{p}, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: %v, want %v", row.In, got, row.Want)
		}
		if got := defaultOnError(nil, []*pattern{p}, true); got != sluice.Allow {
			t.Errorf("%q in shadow: %v", row.In, got)
		}
	}
	if got := defaultOnError([]string{"login.example.com"}, nil, false); got != sluice.Deny {
		t.Errorf("a host: %v", got)
	}
}

// What applies out of many rules is what applies of each alone.
func TestIndexAgainstSingleRules(t *testing.T) {
	t.Parallel()
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

func TestLookupOfEveryPattern(t *testing.T) {
	t.Parallel()
	var tr tree
	for i, s := range []string{"GET /a/{x}/b", "/", "example.com/c/", "POST /d"} {
		p := patternOf(t, s)
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
