package control

import (
	"fmt"
	"net/url"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Kind is a kind of items.
type Kind string

const (
	Rules     Kind = "rule"
	Tiers     Kind = "tier"
	Subjects  Kind = "subject"
	Overrides Kind = "override"
)

// Kinds are all kinds.
var Kinds = []Kind{Rules, Tiers, Subjects, Overrides}

// Role returns the role that is required to change items of the kind.
func (k Kind) Role() source.Role {
	if k == Rules || k == Tiers {
		return source.Admin
	}
	return source.Operator
}

// Path returns the path of an item in the admin API, or of the list if the ID is empty.
func (k Kind) Path(id string) string {
	path := "/v1/" + string(k) + "s"
	if id != "" {
		path += "/" + url.PathEscape(id)
	}
	return path
}

// Tier is a tier with its limits by rule. In a policy, each [policy.Rule] has its own part of these limits.
type Tier struct {
	Name        string                   `json:"name"`
	Description string                   `json:"description,omitempty"`
	Limits      map[string]policy.Limits `json:"limits,omitempty"`
}

// kindOf returns the kind of a document.
func kindOf(document any) Kind {
	switch document.(type) {
	case *policy.Rule:
		return Rules
	case *Tier:
		return Tiers
	case *policy.TierSubject:
		return Subjects
	case *policy.Override:
		return Overrides
	}
	panic(fmt.Sprintf("control: %T is not an item", document))
}
