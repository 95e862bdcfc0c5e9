// Package rewritten runs the tests of other limiters against Sluice. Each package below it has the API of one limiter,
// and the tests of that limiter's module run against it, with the import replaced.
package rewritten

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/stretchr/testify/assert" // their tests import these
	_ "github.com/stretchr/testify/require"
	_ "github.com/throttled/throttled/v2/store/memstore"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	redis_rate "github.com/sluicehq/sluice/peers/rewritten/redisrate"
)

const here = "github.com/sluicehq/sluice/peers/rewritten/"

var suites = []struct {
	module string
	name   string // of the module's package
	file   string // with the tests
	dir    string // of the package with the same API
	redis  string // the address of a server in the file, or ""
	skip   string // a pattern of tests that do not test decisions
	tries  int    // more than 1 if the tests wait in real time, which fails on a busy machine
}{
	{module: "github.com/go-redis/redis_rate/v10", name: "redis_rate", file: "rate_test.go", dir: "redisrate", redis: ":6379", tries: 5},
	// The skipped tests limit how often its store may refuse to swap a value.
	{module: "github.com/throttled/throttled/v2", name: "throttled", file: "rate_test.go", dir: "throttled", skip: "TestRateLimitUpdateFailures", tries: 1},
}

func TestSuites(t *testing.T) {
	for _, s := range suites {
		t.Run(s.dir, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join(moduleDir(t, s.module), s.file))
			if err != nil {
				t.Fatal(err)
			}
			edits := []string{`"` + s.module + `"`, s.name + ` "` + here + s.dir + `"`}
			env := os.Environ()
			if s.redis != "" {
				server := redistest.Start(t)
				edits, env = append(edits, s.redis, server.Addr), append(env, redis_rate.URL+"="+server.URL())
			}
			tests := testkit.File(t, "suite_test.go", strings.NewReplacer(edits...).Replace(string(text)))
			in, err := filepath.Abs(s.dir)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(in, "suite_test.go"): tests}})
			if err != nil {
				t.Fatal(err)
			}
			args := []string{"test", "-count", "1", "-v", "-vet=off", "-overlay", testkit.File(t, "overlay.json", string(overlay))}
			if s.skip != "" {
				args = append(args, "-skip", s.skip)
			}
			for try := 1; ; try++ {
				c := exec.CommandContext(t.Context(), "go", append(args, "./"+s.dir)...)
				c.Env = env
				out, err := c.CombinedOutput()
				passed := strings.Count(string(out), "--- PASS")
				switch {
				case err == nil && passed > 0:
					t.Logf("%d tests of %s pass", passed, s.module)
					return
				case try == s.tries:
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// moduleDir returns the directory of a module.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
