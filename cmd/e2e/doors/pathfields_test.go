package doors

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	gateway "github.com/sluicehq/sluice/cmd/internal/door/proxy"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Fields that some server reads as the path, the method or the host do not pass the proxy of an example, just as they
// do not pass the gateway, whatever characters replace the hyphens. If hyphens is true, the proxy drops only names with
// hyphens. A proxy may set such a field itself.
func testPathFields(t *testing.T, addr string, hyphens bool) {
	t.Helper()
	var names []string
	for _, name := range gateway.PathFields() {
		names = append(names, name, strings.ToLower(name))
		if under := strings.ReplaceAll(name, "-", "_"); !hyphens {
			names = append(names, under, strings.ReplaceAll(name, "-", "."), strings.Replace(under, "_", "-", 1))
		}
	}
	var fields strings.Builder
	for _, name := range append(slices.Clone(names), "X-API-Key") {
		fmt.Fprintf(&fields, "%s: /free\r\n", name)
	}
	first, body := raw(t, addr, request("GET", "/", "api.test", fields.String()))
	var got seen
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%s %s: %v", first, body, err)
	}
	if got.Header.Get("X-API-Key") != "/free" {
		t.Errorf("the backend gets no X-API-Key, among %v", got.Header)
	}
	plain := strings.NewReplacer("_", "-", ".", "-")
	for name, values := range got.Header {
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, plain.Replace(name)) }) && slices.Contains(values, "/free") {
			t.Errorf("the backend gets %s: %q", name, values)
		}
	}
}

func TestPathFieldsOfHAProxy(t *testing.T) {
	t.Parallel()
	agent := testkit.Addr(t)
	limit(t, threeADay, "--spoe", agent)
	testPathFields(t, strings.TrimPrefix(haproxy(t, agent, backend(t)), "http://"), false)
}

// haproxy starts HAProxy with the example of deploy/.
func haproxy(t *testing.T, agent, backend string) (url string) {
	t.Helper()
	addr := testkit.Addr(t)
	messages := testkit.File(t, "spoe-sluice.conf", example(t, "haproxy/spoe-sluice.conf"))
	config := testkit.File(t, "haproxy.cfg", example(t, "haproxy/haproxy.cfg", "/etc/haproxy/spoe-sluice.conf", messages,
		"127.0.0.1:8000", addr, "127.0.0.1:9000", agent, "127.0.0.1:3000", backend))
	testkit.Launch(t, command(testkit.Program(t, "haproxy"), "-db", "-f", config), addr)
	return "http://" + addr
}

// The examples for proxies that this package does not run by default list the same fields.
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
