package sluice_test

import (
	"testing"

	"github.com/sluicehq/sluice"
)

func TestOrigin(t *testing.T) {
	for o, want := range map[sluice.Origin]struct {
		word     string
		degraded bool
	}{
		sluice.ByStore:      {"store", false},
		sluice.ByDenyCache:  {"deny_cache", false},
		sluice.ByLease:      {"lease", false},
		sluice.BySync:       {"sync", false},
		sluice.ByLocalShare: {"local_share", true},
		sluice.ByOnError:    {"on_error", true},
	} {
		if o.String() != want.word || o.Degraded() != want.degraded {
			t.Errorf("%d: %v, degraded %v", o, o, o.Degraded())
		}
	}
}
