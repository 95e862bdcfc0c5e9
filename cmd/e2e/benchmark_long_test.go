//go:build long

package e2e

import (
	"strings"
	"testing"
)

// redis-benchmark ends at the first error that it is told.
func TestLongRedisBenchmark(t *testing.T) {
	t.Parallel()
	addr := serveRESP(t)
	for _, args := range []string{
		"-q -n 2000 -t ping_inline,ping_mbulk",
		"-q -n 20000 -P 64 -c 20 CL.THROTTLE user__rand_int__ 15 30 60 1",
		"-q -n 2000 -c 64 -r 100 SLUICE.CHECK per-key api_key k__rand_int__",
		"-q -n 2000 -3 -P 7 SLUICE.PEEK per-key api_key k",
	} {
		got := output(t, "", "redis-benchmark", append([]string{"-p", port(addr)}, strings.Fields(args)...)...)
		if !strings.Contains(got, "requests per second") || strings.Contains(got, "WARN") {
			t.Errorf("redis-benchmark %s\n%s", args, got)
		}
	}
}
