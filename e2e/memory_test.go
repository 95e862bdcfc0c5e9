package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// More keys are limited than there is memory for: some are freed, or new ones refused, and
// operators are told.
func TestMemoryTooSmall(t *testing.T) {
	t.Parallel()
	const policy = "version: 1\nrules:\n  - {name: r, key: [\"header:X-Key\"], limit: 1/day, algorithm: sliding_window_log}\n"
	const keys = 1000 // of which a store of 64 KiB has room for some 200
	for name, refuse := range map[string]bool{"freed": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := before(t, func(http.ResponseWriter, *http.Request) {}, "--policy", write(t, "one.yaml", policy), "--memory-size", "64KiB", fmt.Sprint("--refuse-new-keys=", refuse))
			ask := func(key string) int {
				resp, _ := do(t, request(t, "GET", g.url, "", "X-Key", key))
				return resp.StatusCode
			}
			if status := ask("first"); status != 200 {
				t.Fatal(status)
			}
			admitted := 0
			for i := range keys {
				if ask(fmt.Sprint(i)) == 200 {
					admitted++
				}
			}
			status := ask("first")
			freed, refused := metric(t, g, "sluice_memory_freed_total"), metric(t, g, "sluice_memory_refused_total")
			switch {
			case refuse && (status != 429 || freed != 0 || int(refused) != keys-admitted || refused == 0):
				t.Errorf("the first client gets %d, %v were freed, %v refused and %d admitted", status, freed, refused, admitted)
			case !refuse && (freed < keys/2 || refused != 0 || admitted != keys):
				t.Errorf("%v were freed, %v refused and %d admitted", freed, refused, admitted)
			case !refuse:
				again := 0
				for i := range keys / 2 {
					if ask(fmt.Sprint(i)) == 200 {
						again++
					}
				}
				if again == 0 {
					t.Error("nobody who was freed is admitted again")
				}
			}
			g.await("it is in the log", func(r record) bool {
				return r.Level == "WARN" && strings.HasPrefix(r.Msg, "more keys are limited than the memory has room for")
			})
		})
	}
}
