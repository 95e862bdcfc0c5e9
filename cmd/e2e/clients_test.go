package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Clients that wait as long as a 429 asks, such as the curl command in docs/headers.md and the examples, get all
// responses. Each request that has to wait is denied at most once, so no client retries too early.
func TestClientsWait(t *testing.T) {
	t.Parallel()
	curl := ""
	for _, block := range blocksOf(t, "../../docs/headers.md", "sh") {
		if strings.HasPrefix(block, "curl ") {
			curl = strings.TrimSpace(block)
		}
	}
	outgoing := filepath.Join(t.TempDir(), "outgoing")
	if out, err := exec.Command("go", "build", "-o", outgoing, "../../examples/outgoing").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clients := map[string]string{
		"curl":    "for i in 1 2 3; do " + curl + "; done",
		"python3": "python3 ../../examples/clients/python/api_client.py URL 3",
		"node":    "node ../../examples/clients/node/api_client.mjs URL 3",
		"go":      outgoing + " URL URL URL",
	}
	g := serve(t, "--upstream", "sample", "--policy", testkit.File(t, "policy.yaml", "version: 1\nrules: [{name: slow, key: [query:c], limit: 1/second burst 1}]\n"))
	t.Run("clients", func(t *testing.T) {
		for name, command := range clients {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				testkit.Program(t, name)
				url := g.URL + "/api/users?c=" + name
				c := exec.CommandContext(t.Context(), "bash", "-euc", strings.NewReplacer("URL", url, "https://api.example.com/orders", url).Replace(command))
				c.Env = append(os.Environ(), "no_proxy=127.0.0.1")
				out, err := c.CombinedOutput()
				if err != nil || strings.Count(string(out), `"alice"`) != 3 {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	})
	if refused := g.Metric(`sluice_decisions_total{outcome="deny",rule="slow"}`); refused > 2*float64(len(clients)) {
		t.Errorf("%v requests of %d clients were denied", refused, len(clients))
	}
}
