package recommend

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy"
)

// compile returns a ServeMux with the patterns of the routes. The test fails if the patterns conflict, or if their
// rules are not a valid policy.
func compile(t testing.TB, groups []route) *http.ServeMux {
	t.Helper()
	mux := http.NewServeMux()
	doc := policy.Document{}
	taken := map[string]bool{}
	for _, g := range groups {
		mux.HandleFunc(g.pattern, func(http.ResponseWriter, *http.Request) {}) // panics if the pattern is invalid
		doc.Rules = append(doc.Rules, (&Config{Key: "client_ip"}).measuring(ruleName(g.pattern, taken), g.pattern))
	}
	if _, err := policy.Compile(doc); err != nil {
		t.Fatal(err)
	}
	return mux
}

func patterns(groups []route) (all []string) {
	for _, g := range groups {
		all = append(all, g.pattern)
	}
	return all
}

// Path segments that differ from request to request become variables.
func TestRoutes(t *testing.T) {
	var tree routes
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3_000 {
		id := rng.IntN(100_000)
		name := strings.Repeat(string(rune('a'+id%26)), 1+id%5) + "x" + string(rune('a'+id/26%26))
		for _, asked := range [][2]string{
			{"GET", fmt.Sprintf("/api/users/%d", id)}, {"GET", fmt.Sprintf("/api/users/%d?y", id)}, {"GET", fmt.Sprintf("/api/users/%d", id)},
			{"HEAD", fmt.Sprintf("https://example.com/api/users/%d?x=/y", id)},
			{"GET", fmt.Sprintf("/api/users/%d/orders/%08x-1b2c-4d5e-8f90-0123456789ab", id, id)},
			{"POST", "/auth/login"}, {"GET", fmt.Sprint("/search?q=", id)}, {"GET", "/people/" + name},
			{"GET", fmt.Sprintf("/assets/app.%d.js", id)}, {"GET", "/"},
		} {
			tree.note(asked[0], asked[1])
		}
	}
	groups := tree.groups()
	compile(t, groups)
	want := []string{"GET /api/users/{id}", "GET /api/users/{id}/orders/{id2}", "GET /people/{name}", "GET /search", "GET /{$}", "POST /auth/login"}
	if got := slices.Sorted(slices.Values(patterns(groups))); !slices.Equal(got, want) {
		t.Errorf("the routes are %q, want %q", got, want)
	}
	if groups[0].pattern != "GET /api/users/{id}" || groups[0].requests != 12_000 {
		t.Errorf("the busiest route is %+v", groups[0])
	}
}

// hostile returns a random path that may break the tree.
func hostile(rng *rand.Rand) string {
	parts := []string{"a", "b", "{id}", "1", "login", ":x", "*", "GET ", "", "{$}", "{rest...}", "..", "%2e%2e", "\x00\n\xff<script>"}
	path := ""
	for range rng.IntN(20) {
		path += "/" + parts[rng.IntN(len(parts))]
	}
	random := make([]byte, rng.IntN(30))
	for i := range random {
		random[i] = byte(rng.IntN(256))
	}
	return []string{
		path, path, "/" + string(random), strings.Repeat("/a", 20_000), "/" + strings.Repeat("b", 100<<10), "http://" + strings.Repeat("h", rng.IntN(100)),
		fmt.Sprintf("/%x/%x/%x", rng.Uint64(), rng.Uint64(), rng.Uint64()), "", "*", "?", "/?", "//", "example.com:443", "\\\\x",
	}[rng.IntN(14)]
}

// Among hostile requests, the tree keeps its maximum size and still finds a route with more than a hundredth of the
// requests. Its patterns are valid.
func TestHostileRoutes(t *testing.T) {
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 2))
		tree := routes{room: 300}
		for i := range 10_000 {
			method := []string{"GET", "POST", "", "BREW", "GET\x00", "{x}"}[rng.IntN(6)]
			path := hostile(rng)
			switch {
			case len(path) > 1<<10 && i%10 > 0:
				continue
			case i%20 == 0:
				method, path = "GET", fmt.Sprintf("/shop/item/%d", rng.IntN(1000))
			}
			tree.note(method, path)
			if i%500 == 0 && tree.root.size() > tree.room+maxSegments {
				t.Fatalf("seed %d: %d nodes, want at most about %d", seed, tree.root.size(), tree.room)
			}
		}
		groups := tree.groups()
		compile(t, groups)
		if len(groups) > maxRoutes {
			t.Errorf("seed %d: %d routes", seed, len(groups))
		}
		if !slices.Contains(patterns(groups), "GET /shop/item/{id}") {
			t.Errorf("seed %d: GET /shop/item/{id} is not among %q", seed, patterns(groups))
		}
	}
}

// Of two patterns that conflict in a ServeMux, the busier one stays.
func TestConflictsAreLeftOut(t *testing.T) {
	var tree routes
	for i := range 1_000 {
		tree.note("GET", fmt.Sprintf("/a/%d/c", i)) // GET /a/{id}/c
		if i%2 == 0 {
			tree.note("GET", fmt.Sprintf("/a/b/%d", i)) // GET /a/b/{id}
		}
	}
	groups := tree.groups()
	mux := compile(t, groups)
	if _, pattern := mux.Handler(httptest.NewRequest("GET", "/a/b/c", nil)); pattern != "GET /a/{id}/c" {
		t.Errorf("/a/b/c matches %q, among %q", pattern, patterns(groups))
	}
}

func FuzzRoutes(f *testing.F) {
	f.Add("GET", "/a/1", "/b/{x}")
	f.Add("POST", "http://x/y?z", "//..//%00")
	f.Fuzz(func(t *testing.T, method, a, b string) {
		tree := routes{room: 10}
		for range 3 {
			tree.note(method, a)
			tree.note("GET", b)
			tree.note("GET", a+b)
		}
		compile(t, tree.groups())
	})
}
