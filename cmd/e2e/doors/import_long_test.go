//go:build long

package doors

import "testing"

// More configurations, and the sequences that nginx's own tests go through.
func TestLongImportNginx(t *testing.T) {
	t.Parallel()
	testImports(t, "testdata/imports_long.txt")
}
