package adminapi_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

func operation(name string) *openapi3.Operation {
	method, path, _ := strings.Cut(name, " ")
	return document.Paths.Find(path).GetOperation(method)
}

// The API and the document have the same operations with the same roles.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	var answered []string
	for _, r := range adminapi.Routes() {
		answered = append(answered, r.Name)
		if o := operation(r.Name); o != nil && fmt.Sprint(o.Extensions["x-role"]) != r.Role.String() {
			t.Errorf("%s needs %s, but x-role in the document is %v", r.Name, r.Role, o.Extensions["x-role"])
		}
	}
	slices.Sort(answered)
	if written := document.Operations(); !slices.Equal(answered, written) {
		t.Errorf("the API has\n%s\nthe document has\n%s", strings.Join(answered, "\n"), strings.Join(written, "\n"))
	}
}

// The schemas have the same fields as the types.
func TestOpenAPIHasAllFields(t *testing.T) {
	for name, v := range map[string]any{
		"Rule": policy.Rule{}, "Override": policy.Override{}, "Subject": policy.TierSubject{}, "Tier": control.Tier{}, "Count": policy.Count{}, "Share": policy.Share{},
	} {
		checkFields(t, name, reflect.TypeOf(v), document.Components.Schemas[name].Value)
	}
	checkFields(t, "Cost", reflect.TypeOf(policy.Cost{}), document.Components.Schemas["Cost"].Value.OneOf[1].Value)
	checkFields(t, "Penalty", reflect.TypeOf(policy.Penalty{}), document.Components.Schemas["Penalty"].Value.OneOf[1].Value)
	checkFields(t, "Share", reflect.TypeOf(policy.Share{}), document.Components.Schemas["Share"].Value)
	checkFields(t, "Body", reflect.TypeOf(policy.Body{}), document.Components.Schemas["Body"].Value)
	checkFields(t, "Rule.distinct", reflect.TypeOf(policy.Distinct{}), document.Components.Schemas["Rule"].Value.Properties["distinct"].Value)
	doc := document.Components.Schemas["Document"].Value
	checkFields(t, "Document", reflect.TypeOf(policy.Document{}), doc, "overrides", "subjects", "-version")
	checkFields(t, "Document.cors", reflect.TypeOf(policy.CORS{}), doc.Properties["cors"].Value)
	checkFields(t, "Document.tiers", reflect.TypeOf(policy.Tiers{}), doc.Properties["tiers"].Value)
}

// checkFields compares the fields of a type and of a schema. The names in differs may be missing in the schema or, with
// the prefix "-", in the type.
func checkFields(t *testing.T, name string, of reflect.Type, schema *openapi3.Schema, differs ...string) {
	t.Helper()
	var want, have []string
	for i := range of.NumField() {
		if tag, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); tag != "-" && !slices.Contains(differs, tag) {
			want = append(want, tag)
		}
	}
	for property := range schema.Properties {
		if !slices.Contains(differs, "-"+property) {
			have = append(have, property)
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(want, have) {
		t.Errorf("%s: the type has the fields %q, and the schema %q", name, want, have)
	}
}
