package adminapi

import (
	"github.com/sluicehq/sluice/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// decodeIn decodes data as the only entry of a list of a policy.
func decodeIn(list string, data []byte) (policy.Document, error) {
	text := `{"version":1,"rules":[],`
	if list == "rules" {
		text = `{"version":1,`
	}
	text += `"` + list + `":[` + string(data) + "]}" // data is one JSON value
	doc, err := policyfile.Decode("body.json", []byte(text))
	if found, ok := err.(policy.Errors); ok {
		return doc, control.Mistakes(found, list+"[0]")
	}
	return doc, err
}

func decodeRule(data []byte) (any, error) {
	doc, err := decodeIn("rules", data)
	if err != nil {
		return nil, err
	}
	return &doc.Rules[0], nil
}

func decodeOverride(data []byte) (any, error) {
	doc, err := decodeIn("overrides", data)
	if err != nil {
		return nil, err
	}
	return &doc.Overrides[0], nil
}

func decodeSubject(data []byte) (any, error) {
	doc, err := decodeIn("subjects", data)
	if err != nil {
		return nil, err
	}
	return &doc.Subjects[0], nil
}

func decodeTier(data []byte) (any, error) {
	t := &control.Tier{}
	if err := decodeInto(data, t); err != nil {
		return nil, err
	}
	return t, nil
}
