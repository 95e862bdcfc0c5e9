//go:build h2spec

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// h2spec returns the number of test cases that a server fails.
func h2spec(t *testing.T, addr string) int {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.CommandContext(t.Context(), os.Getenv("SLUICE_H2SPEC"), "-h", host, "-p", port, "-t", "-k").CombinedOutput()
	found := regexp.MustCompile(`(\d+) tests, (\d+) passed, (\d+) skipped, (\d+) failed`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("%s", out)
	}
	t.Logf("%s: %s", addr, found[0])
	failed, err := strconv.Atoi(string(found[4]))
	if err != nil {
		t.Fatal(err)
	}
	return failed
}

// The gateway's HTTP/2 fails no more test cases of h2spec than net/http. SLUICE_H2SPEC is the path of h2spec, which
// "make h2spec" builds.
func TestH2Spec(t *testing.T) {
	upstream := upstreamOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	plain := httptest.NewUnstartedServer(nil)
	plain.EnableHTTP2 = true
	plain.StartTLS()
	defer plain.Close()
	g := secure(t, testkit.NewAuthority(t), "--upstream", upstream, "--policy", testkit.File(t, "policy.yaml", wide))
	floor, ours := h2spec(t, plain.Listener.Addr().String()), h2spec(t, g.Addr)
	if ours > floor {
		t.Errorf("the gateway fails %d cases, and net/http %d", ours, floor)
	}
}
