package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
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

// Tier is a tier by itself: the limits that it has in the rules, by their names. It is one
// column of what [policy.Rule] has in Tiers.
type Tier struct {
	Name        string                   `json:"name"`
	Description string                   `json:"description,omitempty"`
	Limits      map[string]policy.Limits `json:"limits,omitempty"`
}

// Item is a rule, tier, subject or override, and what is known of it.
type Item struct {
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

// OverrideID returns a name for the override of a rule for the subject with that key.
func OverrideID(rule string, key map[string]string) string {
	text, _ := json.Marshal(key) // a map of texts always can be
	sum := sha256.Sum256([]byte(rule + "\x00" + string(text)))
	return hex.EncodeToString(sum[:8])
}

// Current is the policy in force as it is written. It is not changed; when it changes, there is
// another one.
type Current struct {
	// Document is all of it. Source of its parts says where they come from.
	Document *policy.Document
	// File is what the file of it has; nil if there is none.
	File *policy.Document
	// FileBefore is what the file of the policy before said; nil if there was none since the start.
	FileBefore *policy.Document
	// Rows returns what the database has of a kind; nil if there is none.
	Rows func(Kind) []Item
	// Settings are those of the database; nil if it has none, or there is none.
	Settings *Settings
}

// Settings are what the database says beside its rules.
type Settings struct {
	Version int64
	Shadow  string // see [policy.Document]
}

// SettingsVersion is 0 if there are none.
func (c *Current) SettingsVersion() int64 {
	if c.Settings == nil {
		return 0
	}
	return c.Settings.Version
}

// RuleChange is what becomes of one rule. It requires the version Match of the rule's row: see Put.
type RuleChange struct {
	Name  string
	Rule  *policy.Rule // nil: it is deleted
	Match source.Match
}

// FileShadow is what the file says of a whole shadow.
func (c *Current) FileShadow() string {
	if c.File == nil {
		return ""
	}
	return c.File.Shadow
}

// DatabaseShadow is what the database says of a whole shadow.
func (c *Current) DatabaseShadow() string {
	if c.Settings == nil {
		return ""
	}
	return c.Settings.Shadow
}
