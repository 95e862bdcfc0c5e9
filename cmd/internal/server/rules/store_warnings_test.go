package rules

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/stores"
)

// A rule is evictable if its keys, with the limit used up, expire sooner than new keys of another rule.
func TestEvictable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		rules, long string
		short       []string
	}{
		{"[{name: a, limit: 60/minute}]", "a", nil},
		{"[{name: a, limit: 60/minute}, {name: b, limit: 600/hour}]", "b", nil},
		{"[{name: a, limit: 60/minute}, {name: b, limit: 100/day}]", "b", []string{"a"}},
		{"[{name: a, limit: 60/minute}, {name: b, limit: 1000/day, algorithm: fixed_window}, {name: c, key: [client_ip], in_flight: 5}]", "b", []string{"a", "c"}},
		{"[{name: a, limit: 9/day, algorithm: fixed_window}, {name: b, limit: 10/day, algorithm: fixed_window}]", "a", nil},
		{"[{name: a, limit: 60/minute, algorithm: sliding_window_log}, {name: b, limit: 100/90s, algorithm: sliding_window_log}]", "b", nil},
		{"[{name: a, limit: 60/hour, tiers: {pro: 60/minute}}, {name: b, limit: 30/hour}]", "b", []string{"a"}},
	} {
		p, err := policyfile.Parse("p", []byte("version: 1\ntiers: {from: header:X-Plan, default: free}\nrules: "+test.rules))
		if err != nil {
			t.Fatal(err)
		}
		if short, long := evictable(p.Plans()); long != test.long || !slices.Equal(short, test.short) {
			t.Errorf("%s: new keys of %q evict those of %q, want %q and %q", test.rules, long, short, test.long, test.short)
		}
	}
	if short, long := evictable(new(policy.Policy).Plans()); len(short) > 0 || long != "" {
		t.Errorf("a policy without rules: %q, %q", short, long)
	}
}

// The log names evictable rules once, even if the store becomes available only after the start.
func TestEvictableIsLogged(t *testing.T) {
	t.Parallel()
	settings := []string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"}
	for name, later := range map[string]bool{"at the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, settings...)
			if later {
				server.Kill()
			}
			var log testkit.Log
			logger := slog.New(slog.NewTextHandler(&log, nil))
			file := testkit.File(t, "p.yaml", "version: 1\nrules: [{name: a, limit: 60/minute}, {name: b, limit: 100/day}]")
			r, err := Open(t.Context(), Config{Settings: &Settings{File: file}, Log: logger, Warnings: func(*policy.Policy) []policy.Problem { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			store, err := stores.Open(t.Context(), server.URL(), stores.Config{Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			r.Use(policy.NewEngine(store, r.Stack().Policy()), store, nil)
			ctx, stop := context.WithCancel(t.Context())
			var following sync.WaitGroup
			defer following.Wait()
			defer stop()
			following.Go(func() { r.Follow(ctx, nil) })
			if later {
				server.Restart(settings...)
			}
			var all string
			testkit.Await(t, "the log names the rules", func() bool {
				all += log.Take()
				return strings.Contains(all, "flooded=b freed=a")
			})
			stop()
			following.Wait()
			if all += log.Take(); strings.Count(all, "freed=a") != 1 {
				t.Errorf("want one warning in the log: %s", all)
			}
		})
	}
}
