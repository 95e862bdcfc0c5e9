//go:build long

package doors

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Traefik takes minutes to build if the build cache has none of its packages.
func TestLongTraefik(t *testing.T) {
	proxy{
		name: "traefik", asker: "traefik+body", client: "X-Forwarded-For", start: traefik,
		without: 500, untold: true, once: true, hyphens: true,
	}.test(t)
}

func TestLongSame(t *testing.T) {
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			r := read(t, p.asker, p.client)
			r.same(t, strings.TrimPrefix(p.start(t, r.limiter, r.backend), "http://"), 3000)
		})
	}
}

var buildTraefik = builds("traefik", "github.com/traefik/traefik/v3/cmd/traefik")

// traefik starts Traefik with the example of deploy/.
func traefik(t *testing.T, limiter, backend string, replaced ...string) (url string) {
	t.Helper()
	program, err := buildTraefik()
	if err != nil {
		t.Fatal(err)
	}
	addr := testkit.Addr(t)
	dynamic := testkit.File(t, "dynamic.yml", example(t, "traefik/dynamic.yml", append(replaced, "127.0.0.1:8081", limiter, "127.0.0.1:3000", backend)...))
	static := testkit.File(t, "traefik.yml", example(t, "traefik/traefik.yml", `":80"`, `"`+addr+`"`, "dynamic.yml", dynamic))
	testkit.Launch(t, command(program, "--configfile="+static), addr)
	url = "http://" + addr
	// No limiter counts requests for such a host.
	testkit.Await(t, "Traefik has loaded the routes", func() bool { return ask(t, "GET", url+"/", "", "Host", "a..b").status != 404 })
	return url
}
