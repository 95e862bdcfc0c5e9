package failover_test

import (
	"testing"

	"go.uber.org/goleak"
)

// After all tests no goroutine is left, but for those in which the client of a cluster
// waits for five seconds before it closes connections to nodes that have gone.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}
