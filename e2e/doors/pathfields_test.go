package doors

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	gateway "github.com/sluicehq/sluice/internal/proxy"
	"github.com/sluicehq/sluice/internal/testkit"
)

// What some server takes for the path, the method or the host does not get past a proxy of an example,
// as it does not get past the gateway, whatever stands for the hyphens.
func TestPathFields(t *testing.T) {
	starts := map[string]func(t *testing.T, backend string) string{
		"haproxy": func(t *testing.T, backend string) string {
			agent := testkit.Addr(t)
			limit(t, threeADay, "--spoe", agent)
			return haproxy(t, agent, backend)
		},
	}
	for _, p := range proxies {
		starts[p.name] = func(t *testing.T, backend string) string {
			return p.start(t, limit(t, threeADay, "--auth", p.asker).addr, backend)
		}
	}
	t.Parallel()
	for name, start := range starts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var got http.Header
			backend := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				got = r.Header
			}))
			t.Cleanup(backend.Close)
			url := start(t, backend.Listener.Addr().String())

			var names []string
			for _, name := range gateway.PathFields() {
				under := strings.ReplaceAll(name, "-", "_")
				names = append(names, name, strings.ToLower(name), under, strings.ReplaceAll(name, "-", "."), strings.Replace(under, "_", "-", 1))
			}
			var fields strings.Builder
			for _, name := range append(slices.Clone(names), "X-API-Key") {
				fmt.Fprintf(&fields, "%s: /free\r\n", name)
			}
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = io.WriteString(c, request("GET", "/", "api.test", fields.String()))
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
				t.Fatalf("%v: %.300s", err, answer)
			}
			mu.Lock()
			defer mu.Unlock()
			if got.Get("X-API-Key") != "/free" {
				t.Errorf("the backend gets no X-API-Key, among %v", got)
			}
			for name, values := range got {
				plain := strings.Map(func(r rune) rune {
					if r == '_' || r == '.' {
						return '-'
					}
					return r
				}, name)
				if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, plain) }) {
					t.Errorf("the backend gets %s: %q", name, values)
				}
			}
		})
	}
}

// The examples for proxies that are not run here name the same fields.
func TestPathFieldsInExamples(t *testing.T) {
	t.Parallel()
	for file, own := range map[string]string{
		"kong/kong.yml": "", "apisix/route.yaml": "", "envoy/ext_authz.yaml": "", "traefik/dynamic.yml": "X-Forwarded-Server",
	} {
		named := strings.FieldsFunc(strings.ToLower(example(t, file)), func(r rune) bool {
			return r != '-' && (r < 'a' || r > 'z')
		})
		for _, name := range gateway.PathFields() {
			if name != own && !slices.Contains(named, strings.ToLower(name)) {
				t.Errorf("%s does not drop %s", file, name)
			}
		}
	}
}
