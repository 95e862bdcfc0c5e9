package doors

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// buildCaddy takes two minutes if the build cache has no package of Caddy.
var buildCaddy = builds("caddy", ".")

// caddy starts Caddy with the example of deploy/.
func caddy(t *testing.T, limiter, backend string, replaced ...string) (url string) {
	t.Helper()
	program, err := buildCaddy()
	if err != nil {
		t.Fatal(err)
	}
	addr, fallback := testkit.Addr(t), testkit.Addr(t)
	replaced = append(replaced, "127.0.0.1:8081", limiter, "127.0.0.1:3000", backend, ":8089", port(fallback), "\n:80 {", "\nhttp://"+port(addr)+" {\n\tbind 127.0.0.1")
	file := testkit.File(t, "Caddyfile", example(t, "caddy/Caddyfile", replaced...))
	c := command(program, "run", "--config", file)
	c.Env = append(c.Env, "HOME="+t.TempDir())
	testkit.Launch(t, c, addr)
	// Caddy opens its sites one after the other, in any order.
	testkit.Await(t, "Caddy listens at its second site", func() bool { return testkit.Listens(fallback) })
	return "http://" + addr
}

// port returns the port of an address, with its colon.
func port(addr string) string { return addr[strings.LastIndexByte(addr, ':'):] }
