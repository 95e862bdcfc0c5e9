package adminapi

import (
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// decodeDocument decodes data, a single JSON value, as a document of a kind.
func decodeDocument(kind control.Kind, data []byte) (any, error) {
	if kind == control.Tiers {
		t := &control.Tier{}
		return t, decodeInto(data, t)
	}
	list := string(kind) + "s"
	text := `{"version":1,"rules":[],`
	if kind == control.Rules {
		text = `{"version":1,`
	}
	doc, err := policyfile.Decode("body.json", []byte(text+`"`+list+`":[`+string(data)+"]}"))
	found, wrong := err.(policy.Errors)
	switch {
	case wrong:
		return nil, control.Mistakes(found, list+"[0]")
	case err != nil:
		return nil, err
	case kind == control.Rules:
		return &doc.Rules[0], nil
	case kind == control.Overrides:
		return &doc.Overrides[0], nil
	}
	return &doc.Subjects[0], nil
}
