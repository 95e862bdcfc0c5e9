package pattern

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy/internal/paths"
)

// matches reports whether any reading of the path matches, and whether all do.
func matches(t testing.TB, patternText, method, host, path string, ignoreCase bool) (some, all bool) {
	t.Helper()
	p := patternOf(t, patternText)
	tr := Tree{IgnoreCase: ignoreCase}
	tr.Add(p, 7, false)
	tr.Add(p, 8, true)
	all = true
	for _, v := range paths.Readings(path, ignoreCase, new(paths.Buffer)) {
		ids := tr.Lookup(nil, Method(method), host, &v)
		some, all = some || slices.Contains(ids, 7), all && slices.Contains(ids, 8)
	}
	return some, all
}

// naive returns a pattern as a regular expression, which is another way to match.
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
		var tr Tree
		var texts []string
		var exprs []*regexp.Regexp
		for len(texts) < 40 {
			p := patternOf(t, randomPattern(r))
			tr.Add(p, len(texts), true)
			texts, exprs = append(texts, p.Text), append(exprs, naive(p.Text))
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
			got := tr.Lookup(nil, Method(method), host, &all[0])
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
			matched, valid = false, false // a pattern that ServeMux rejects
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

// FuzzPattern compares patterns with net/http: a path that matches for ServeMux must match here as well.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{"/", "GET /a/{x}/b", "example.com/a/{$}", "/a%2fb/{r...}", "/a/b/", "POST /größe"} {
		for _, path := range []string{"/", "/a/y/b", "/a//b/", "/a%2Fb/c/d", "/x/../a/b/c", "/a/%62/"} {
			f.Add(s, path)
		}
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		p, err := Parse(text)
		if err != nil || !strings.HasPrefix(path, "/") || len(path) > 200 {
			return
		}
		method := p.Method
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

// rows returns the rows of a section of the test data.
func rows(t testing.TB, section string) []testkit.Row {
	t.Helper()
	return testkit.SectionOf(t, "testdata/patterns.txt", section).Rows(t)
}

func patternOf(t testing.TB, text string) *Pattern {
	t.Helper()
	p, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p
}

func TestParsePattern(t *testing.T) {
	t.Parallel()
	for _, row := range rows(t, "patterns") {
		p := patternOf(t, row.In)
		want := append(testkit.Words(row.Want), "")[:4]
		if p.Text != row.In || p.Method != want[0] || p.Host != want[1] || strings.Join(p.segs, "|") != want[2] || p.multi != (want[3] == "multi") {
			t.Errorf("%q is %+v, want %q", row.In, p, want)
		}
	}
	for _, row := range rows(t, "patterns that are none") {
		if p, err := Parse(row.In); err == nil || !strings.Contains(err.Error(), row.Want) {
			t.Errorf("%q: %+v, %v; want %s", row.In, p, err, row.Want)
		}
	}
	if _, err := Parse("/" + strings.Repeat("x/{", 1000)); len(err.Error()) > 400 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, row := range rows(t, "patterns that match") {
		in := testkit.Words(row.In)
		method, host, path := "GET", "", ""
		for _, word := range in[1:] {
			switch name, value, found := strings.Cut(word, "="); {
			case word[0] == '/' || name == "path":
				path = strings.TrimPrefix(word, "path=")
			case name == "host":
				host = value
			case found:
				method = value
			default:
				method = word
			}
		}
		if got, _ := matches(t, in[0], method, host, path, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%s: %v", row.In, got)
		}
	}
	for _, row := range rows(t, "paths that match /Auth/login or /größe/ſtraße without case") {
		login, _ := matches(t, "/Auth/login", "GET", "", row.In, true)
		street, _ := matches(t, "/größe/ſtraße", "GET", "", row.In, true)
		if fmt.Sprint(login || street) != row.Want {
			t.Errorf("%s matches: %v, %v", row.In, login, street)
		}
	}
}

// A limit applies to a path in any disguise, and an exemption applies to no disguised path.
func TestDisguises(t *testing.T) {
	t.Parallel()
	for _, row := range rows(t, "paths that are POST /auth/login") {
		if some, _ := matches(t, "POST /auth/login", "POST", "", row.In, false); fmt.Sprint(some) != row.Want {
			t.Errorf("%s is taken for /auth/login: %v", row.In, some)
		}
	}
	for _, path := range []string{
		"/auth/login" + strings.Repeat("/", 10_000), "/auth%2flogin;" + strings.Repeat("x", 1<<20), "/" + strings.Repeat("x/../", 10_000) + "auth/login",
		"/auth%2flogin%2f" + strings.Repeat("%2e%2f", 20_000),
	} {
		if some, _ := matches(t, "POST /auth/login", "POST", "", path, false); !some {
			t.Errorf("%.60q does not match", path)
		}
	}
	if some, _ := matches(t, "/api/search/{rest...}", "GET", "", "/api/search/../x", false); !some {
		t.Error("/api/search/../x does not match, although some servers do not resolve the dots")
	}
	exempt := func(path string) bool {
		_, health := matches(t, "GET /health", "GET", "", path, false)
		_, static := matches(t, "/static/", "GET", "", path, false)
		return health || static
	}
	for _, row := range rows(t, "paths that are exempt") {
		if got := exempt(row.In); fmt.Sprint(got) != row.Want {
			t.Errorf("%s is exempt: %v", row.In, got)
		}
	}
	if exempt("/static/x%2fy%2f..%2f..%2f..%2fapi;" + strings.Repeat("x", 1<<17)) {
		t.Error("a long path is exempt")
	}
}

func TestLookupOfEveryPattern(t *testing.T) {
	t.Parallel()
	var tr Tree
	for i, s := range []string{"GET /a/{x}/b", "/", "example.com/c/", "POST /d"} {
		p := patternOf(t, s)
		tr.Add(p, i, true)
	}
	got := tr.Lookup(nil, "GET", "example.com", &paths.Reading{Every: true})
	slices.Sort(got)
	if !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("every pattern for GET: %d", got)
	}
	if got := tr.Lookup(nil, "GET", "example.com", &paths.Reading{Never: true}); got != nil {
		t.Errorf("no pattern: %d", got)
	}
}
