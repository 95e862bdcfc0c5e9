package source_test

import (
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// A role includes those before it, and one that SQL has made up is nobody's and includes none.
func TestRoles(t *testing.T) {
	t.Parallel()
	all := []source.Role{source.Nobody, source.Viewer, source.Operator, source.Admin}
	for i, has := range all {
		for j, needed := range all {
			if has.May(needed) != (i >= j) {
				t.Errorf("%s may what %s may: %v", has, needed, has.May(needed))
			}
		}
	}
	for _, name := range []string{"", "root", "Admin"} {
		if r, known := source.ParseRole(name); known || r != source.Nobody {
			t.Errorf("ParseRole(%q): %s, %v", name, r, known)
		}
	}
	if source.Role("root").May(source.Viewer) {
		t.Error("an unknown role may look")
	}
}
