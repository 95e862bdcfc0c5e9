package rules

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// The start and the end of the whole policy's shadow mode are logged once each, the end even without a request.
func TestShadowIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		logged := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			var lines []string
			for line := range strings.Lines(log.Take()) {
				if strings.Contains(line, "DENIED") || strings.Contains(line, "enforced again") {
					lines = append(lines, line)
				}
			}
			if len(lines) != len(want) {
				t.Fatalf("%s: the log has %q", what, lines)
			}
			for i := range want {
				if !strings.Contains(lines[i], want[i]) {
					t.Errorf("%s: the log has %q", what, lines[i])
				}
			}
		}
		saying := func(shadow string) *policy.Policy {
			p, err := policy.Compile(policy.Document{Shadow: shadow, Rules: []policy.Rule{{Name: "all", Key: []string{"client_ip"}, Limit: "1/day"}}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
		until := in(time.Hour)
		r := &Rules{Config: Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, engine: policy.NewEngine(memory.New(), saying(until))}
		r.logShadow()
		logged("at the start", "until="+until)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.followShadow(ctx)
		time.Sleep(time.Hour - time.Second)
		logged("before the end")
		time.Sleep(3 * time.Second)
		logged("after the end", "enforced again")

		until = in(time.Minute)
		r.logShadow()
		r.engine.Swap(saying(until))
		r.logShadow()
		logged("another", "until="+until)
		r.engine.Swap(saying(in(time.Hour))) // a longer one
		time.Sleep(2 * time.Minute)
		logged("a longer one")
		r.engine.Swap(saying(""))
		time.Sleep(2 * time.Second)
		logged("taken away", "enforced again")
	})
}
