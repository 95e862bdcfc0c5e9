package redisstore_test

import (
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
)

// The clock of a real server jumps by an hour, either way. An instance is known again as soon as it is heard of, and
// one that is not heard of any more does not stay. What a jump is to a limit is held by TestConformanceTimed.
func TestServerClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		server := redistest.StartMovable(t)
		store := open(t, server.URL())
		beat := func(id string, want int) {
			t.Helper()
			if n, err := store.Heartbeat(t.Context(), id); n != want || err != nil {
				t.Errorf("%v: %d instances, error %v, want %d", jump, n, err, want)
			}
		}
		beat("a", 1)
		beat("b", 2)
		server.SetClock(jump)
		beat("a", 1)
		beat("b", 2)
		server.SetClock(jump + 10*time.Minute)
		redistest.Eventually(t, "the key of the instances has expired", func() bool { return server.Do("DBSIZE") == "0" })
	}
}
