package postgrestest

import (
	"os"
	"testing"
)

// Each call creates its own database in a shared server.
func TestDatabase(t *testing.T) {
	t.Parallel()
	a, b := Database(t), Database(t)
	if a == b || shared.server == nil {
		t.Errorf("%s and %s", a, b)
	}
	if _, err := os.Stat(shared.server.Dir); err != nil {
		t.Error(err)
	}
}
