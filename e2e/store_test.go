package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
)

// What is secret in the URL of a store is not in the log, and why a store cannot be reached
// is said anew when the reason is another.
func TestStoreOfAnotherKind(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Kill()
	const secret = "Xs3cretX"
	g := serve(t, "--upstream", "sample", "--store", "redis://"+secret+"@"+server.Addr+"/0?prefix="+secret)
	g.await("it begins without", func(r record) bool {
		return strings.HasPrefix(r.Msg, "the store cannot be reached") && strings.Contains(r.Error, "connection refused")
	})
	server.Restart("--requirepass", "other")
	g.await("the password is asked for", func(r record) bool {
		return strings.HasPrefix(r.Msg, "the store still cannot be reached") && strings.Contains(r.Error, "password")
	})
	if log := g.log(); strings.Contains(log, secret) || !strings.Contains(log, `"store":"redis://`+server.Addr+`"`) {
		t.Errorf("the log shows a secret, or not where the store is:\n%s", log)
	}
}

// A store that cannot be reached is away from the first moment, and so is one that freezes
// without anybody asking it.
func TestStoreIdle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := serve(t, "--upstream", "sample", "--strict-ready", "--instances", "2", "--store", server.URL())
	server.Freeze()
	g.awaitStatus(g.admin+"/readyz", http.StatusServiceUnavailable)
	if n := metric(t, g, "sluice_store_away"); n != 1 {
		t.Errorf("%v parts are away, want 1", n)
	}
	server.Thaw()
	g.awaitStatus(g.admin+"/readyz", http.StatusOK)
	redistest.Eventually(t, "the log says how long the store was away, as a text", func() bool { return strings.Contains(g.log(), `"away":"`) })
	server.Kill()
	absent := begin(t, "--upstream", "sample", "--strict-ready", "--store", server.URL())
	if status, _ := get(t, absent.admin+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz is %d without a store", status)
	}
}
