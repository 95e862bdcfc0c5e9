package failover_test

import (
	"testing"

	"go.uber.org/goleak"
)

// After all tests no goroutine is left, but for those in which the client of a cluster
// waits for seconds before it looks at the nodes again, or closes connections to those
// that have gone. They end by themselves.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
