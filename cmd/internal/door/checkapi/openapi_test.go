package checkapi_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
)

// What is answered is in the document, and what is in the document is answered.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	answered := checkapi.Routes()
	slices.Sort(answered)
	if written := document.Operations(); !slices.Equal(answered, written) {
		t.Errorf("answered\n%s\nthe document has\n%s", strings.Join(answered, "\n"), strings.Join(written, "\n"))
	}
}

// The schemas have the members that are read. Those of answers are held to them in all tests, by
// additionalProperties, and the types of the tests have the same.
func TestOpenAPIHasAllMembers(t *testing.T) {
	for schema, names := range checkapi.Members() {
		want := slices.Sorted(slices.Values(names))
		if have := slices.Sorted(maps.Keys(document.Components.Schemas[schema].Value.Properties)); !slices.Equal(want, have) {
			t.Errorf("%s has the members %q, and the document %q", schema, want, have)
		}
	}
}
