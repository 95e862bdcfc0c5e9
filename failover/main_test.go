package failover_test

import (
	"testing"

	"go.uber.org/goleak"
)

// After all tests no goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
