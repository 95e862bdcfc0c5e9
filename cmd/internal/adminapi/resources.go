package adminapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// resource is a kind of what can be changed, and how its body is read.
type resource struct {
	kind   control.Kind
	path   string
	role   source.Role // who may change it
	decode func(data []byte) (any, error)
	// examine compiles the policy that comes of an item, as far as that needs the item alone,
	// and returns where in its document the item is.
	examine func(*API, any) (p *policy.Policy, at string, err error)
}

var resources = []resource{
	{control.Rules, "/v1/rules", source.Admin, decodeRule, (*API).examineRule},
	{control.Tiers, "/v1/tiers", source.Admin, decodeTier, (*API).examineTier},
	{control.Subjects, "/v1/subjects", source.Operator, decodeSubject, (*API).examineSubject},
	{control.Overrides, "/v1/overrides", source.Operator, decodeOverride, (*API).examineOverride},
}

// routes are the operations of a resource.
func (r *resource) routes() []route {
	list := func(a *API, c *call) (any, error) {
		known := []string{"limit", "cursor"}
		if r.kind == control.Overrides {
			known = append(known, "rule", "key.", "q", "state", "sort")
		}
		q, err := c.query(known...)
		if err != nil {
			return nil, err
		}
		return a.list(c, r.kind, q)
	}
	all := []route{
		{"GET", r.path, source.Viewer, list},
		{"POST", r.path, r.role, func(a *API, c *call) (any, error) { return a.create(r, c) }},
		{"GET", r.path + "/{id}", source.Viewer, func(a *API, c *call) (any, error) { return a.read(r.kind, c) }},
		{"PUT", r.path + "/{id}", r.role, func(a *API, c *call) (any, error) { return a.replace(r, c) }},
		{"DELETE", r.path + "/{id}", r.role, func(a *API, c *call) (any, error) { return a.remove(r, c) }},
	}
	if r.kind == control.Subjects {
		all[0].handle = (*API).subjects // which lists them, too
	}
	return all
}

// identify returns the ID of a document, and the field that says it. With an id, what is left
// out is filled in.
func identify(document any, id string) (string, string) {
	fill := func(field *string) string {
		if *field == "" {
			*field = id
		}
		return *field
	}
	switch d := document.(type) {
	case *policy.Rule:
		return fill(&d.Name), "/name"
	case *control.Tier:
		return fill(&d.Name), "/name"
	case *policy.TierSubject:
		return fill(&d.Subject), "/subject"
	case *policy.Override:
		return control.OverrideID(d.Rule, d.Key), "/key"
	}
	panic(fmt.Sprintf("adminapi: %T is no item", document))
}

// sign says who has made a document, where it says that.
func sign(document any, actor string) {
	switch d := document.(type) {
	case *policy.TierSubject:
		d.By = actor
	case *policy.Override:
		d.By = actor
	}
}

// decodeIn reads data as the one entry of a list of a policy.
func decodeIn(list string, data []byte) (policy.Document, error) {
	text := `{"version":1,"rules":[],`
	if list == "rules" {
		text = `{"version":1,`
	}
	text += `"` + list + `":[` + string(data) + "]}" // data is one JSON value
	doc, err := policyfile.Decode("body.json", []byte(text))
	if found, ok := err.(policy.Errors); ok {
		return doc, mistakes(found, list+"[0]")
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

// without returns the document in force without its overrides and subjects, and with rules of
// its own.
func (a *API) without() policy.Document {
	doc := *a.Policy.Now().Document
	doc.Overrides, doc.Subjects = nil, nil
	doc.Rules = slices.Clone(doc.Rules)
	return doc
}

func (a *API) examineRule(document any) (*policy.Policy, string, error) {
	rule := document.(*policy.Rule)
	doc := a.without()
	i := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return r.Name == rule.Name })
	if i < 0 {
		i = len(doc.Rules)
		doc.Rules = append(doc.Rules, policy.Rule{})
	}
	doc.Rules[i] = *rule
	at := fmt.Sprintf("rules[%d]", i)
	p, err := policy.Compile(doc)
	return p, at, examined(err, at)
}

func (a *API) examineOverride(document any) (*policy.Policy, string, error) {
	p, err := a.Engine.Policy().WithOverrides([]policy.Override{*document.(*policy.Override)})
	return p, "overrides[0]", examined(err, "overrides[0]")
}

func (a *API) examineSubject(document any) (*policy.Policy, string, error) {
	p, err := a.Engine.Policy().WithSubjects([]policy.TierSubject{*document.(*policy.TierSubject)})
	return p, "subjects[0]", examined(err, "subjects[0]")
}

// examined makes a problem of what is wrong with the part of a document that is the body.
func examined(err error, at string) error {
	if found, ok := err.(policy.Errors); ok && len(found) > 0 {
		return mistakes(found, at)
	}
	return err
}

func (a *API) examineTier(document any) (*policy.Policy, string, error) {
	tier := document.(*control.Tier)
	doc := a.without()
	at := map[string]string{} // where in the body what is in the document is
	for _, rule := range slices.Sorted(maps.Keys(tier.Limits)) {
		pointer, _ := pointer(fmt.Sprintf(".limits[%q]", rule), "")
		i := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return r.Name == rule })
		if i < 0 {
			return nil, "", badField(pointer, "there is no rule %q", rule)
		}
		tiers := maps.Clone(doc.Rules[i].Tiers)
		if tiers == nil {
			tiers = map[string]policy.Limits{}
		}
		tiers[tier.Name] = tier.Limits[rule]
		doc.Rules[i].Tiers = tiers
		at[fmt.Sprintf("rules[%d].tiers[%q]", i, tier.Name)] = pointer
	}
	p, err := policy.Compile(doc)
	found, ok := err.(policy.Errors)
	if !ok || len(found) == 0 {
		return p, "-", err
	}
	problem := mistakes(found, "-")
	for n := range problem.Errors {
		for path, pointer := range at {
			if strings.HasPrefix(found[n].Path, path) {
				problem.Errors[n].Pointer = &pointer
			}
		}
	}
	return nil, "-", problem
}

// missing is the answer where there is no such item.
func missing(kind control.Kind) *problem {
	return problemf(http.StatusNotFound, "there is no %s of this name", kind)
}
