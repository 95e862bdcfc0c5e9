//go:build long

package lease

import "testing"

func TestLongAllOrders(t *testing.T) { testAllOrders(t, true) }
