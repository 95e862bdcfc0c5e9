package e2e

import (
	"encoding/json"
	"net/http"
	"syscall"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
)

// A gateway that has ended is no instance any more for those that share its store, and what it has counted
// until its end, the drain included, stays.
func TestInstancesThatEnd(t *testing.T) {
	t.Parallel()
	args := append([]string{"--policy", write(t, "policy.yaml", "version: 1\nrules: [{name: all, limit: 3/day}]"), "--upstream", "sample", "--store", redistest.Start(t).URL()}, patientStore...)
	g, other := serve(t, args...), serve(t, args...)
	stats := func() (instances int, stale bool, refused uint64) {
		t.Helper()
		_, body := get(t, g.admin+"/v1/stats")
		var s struct {
			Instances []struct{ Stale bool }
			Requests  struct{ Hour map[string]uint64 }
		}
		if err := json.Unmarshal([]byte(body), &s); err != nil {
			t.Fatal(err, body)
		}
		for _, i := range s.Instances {
			stale = stale || i.Stale
		}
		return len(s.Instances), stale, s.Requests.Hour["deny"]
	}
	redistest.Eventually(t, "both are known", func() bool { n, _, _ := stats(); return n == 2 })
	for i := range 10 {
		if status, _ := get(t, other.url); (status == http.StatusTooManyRequests) != (i >= 3) {
			t.Errorf("request %d: %d", i, status)
		}
	}
	other.signal(syscall.SIGTERM)
	other.wait()
	redistest.Eventually(t, "one is left, with what both have counted", func() bool {
		n, stale, refused := stats()
		if stale {
			t.Fatal("the one that has ended is taken for silent")
		}
		return n == 1 && refused == 7
	})
}
