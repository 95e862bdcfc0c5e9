package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Kind is one of the kinds of things that can be changed.
type Kind string

const (
	Rules     Kind = "rule"
	Tiers     Kind = "tier"
	Subjects  Kind = "subject"
	Overrides Kind = "override"
)

// role returns the role that changes items of the kind.
func (k Kind) role() source.Role {
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

// Tier is a tier by itself: the limits that it has in the rules, by their names. It is one
// column of what [policy.Rule] has in Tiers.
type Tier struct {
	Name        string                   `json:"name"`
	Description string                   `json:"description,omitempty"`
	Limits      map[string]policy.Limits `json:"limits,omitempty"`
}

// item is a rule, tier, subject or override of the policy in force, from which an [Item] is made.
type item struct {
	// ID is the name of a rule or a tier, the value of a subject, or that of [OverrideID].
	ID string
	// Version is that of the database when the item was last changed, 0 for one from a file.
	Version   int64
	UpdatedAt time.Time
	UpdatedBy string
	// Disabled is a rule that the database keeps and that is not in force. Only SQL disables it.
	Disabled bool
	// Document is a *policy.Rule, *Tier, *policy.TierSubject or *policy.Override.
	Document any
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
	panic(fmt.Sprintf("control: %T is no item", document))
}

// OverrideID returns a name for the override of a rule for the subject with that key.
func OverrideID(rule string, key map[string]string) string {
	text, _ := json.Marshal(key) // a map of texts always can be
	sum := sha256.Sum256([]byte(rule + "\x00" + string(text)))
	return hex.EncodeToString(sum[:8])
}

// current is the policy in force as it is written. It is not changed: after a change there is another one.
type current struct {
	document   *policy.Document // all of it; Source of its parts is where they come from
	file       *policy.Document // nil: there is no file
	fileBefore *policy.Document // what the file had before; nil: nothing else since the start
	contents   *source.Contents // nil: nothing of a database is in force
}

// settingsVersion returns the version of the settings of the database, 0 if it has none.
func (now *current) settingsVersion() int64 {
	if now.contents == nil {
		return 0
	}
	return now.contents.Settings.Version
}

// fileShadow returns what the file has for the shadow of the whole policy.
func (now *current) fileShadow() string {
	if now.file == nil {
		return ""
	}
	return now.file.Shadow
}

// databaseShadow returns what the database has for the shadow of the whole policy.
func (now *current) databaseShadow() string {
	if now.settingsVersion() == 0 {
		return ""
	}
	return now.contents.Settings.Document.Shadow
}
