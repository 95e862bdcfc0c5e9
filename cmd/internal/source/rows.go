package source

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Meta has the fields that all rows have.
type Meta struct {
	// Version is the version of the database at the last change of the row. It grows with every change, and is
	// never reused. See [Match].
	Version   int64     `json:"version,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero"` // zero if SQL changed the row
	UpdatedBy string    `json:"updated_by,omitempty"`

	fault string // the reason why the row is unreadable, or ""
}

// SettingsRow has the settings, a document without rules, subjects and overrides. A database has at most one
// SettingsRow. Version is 0 if the row is missing.
type SettingsRow struct {
	Document policy.Document `json:"document"`
	Meta
}

// RuleRow is a rule. Name identifies it.
type RuleRow struct {
	policy.Rule
	// Position orders the rules; rules with the same position are ordered by name. If Position is 0, PutRule keeps
	// the position of an existing rule, and appends a new rule at the end.
	Position int `json:"position,omitempty"`
	// Disabled excludes the stored rule from the policy as if it were deleted. A rule with the same name in the
	// file applies again.
	Disabled bool `json:"disabled,omitempty"`
	Meta
}

// TierRow has the limits of a tier, by the names of rules. They replace the limits that rules have for this tier in
// "tiers".
type TierRow struct {
	Name        string                   `json:"name"`
	Description string                   `json:"description,omitempty"` // a description for operators
	Limits      map[string]policy.Limits `json:"limits,omitempty"`
	Meta
}

// SubjectRow puts a subject into a tier. Subject, which identifies the row, is a value of the key part that
// tiers.subject names.
type SubjectRow struct {
	policy.TierSubject
	Meta
}

// OverrideRow is an override. Rule and Key identify it.
type OverrideRow struct {
	ID   int64  `json:"id"` // the ID of the row, which never changes
	Name string `json:"-"`  // see [OverrideName]
	policy.Override
	Meta
}

// OverrideName returns the name of the override of a rule for a key. It is the same in every database.
func OverrideName(rule string, key map[string]string) string {
	text, _ := json.Marshal(key) // cannot fail for a map of strings
	sum := sha256.Sum256([]byte(rule + "\x00" + string(text)))
	return hex.EncodeToString(sum[:8])
}

// Role is the role of a caller of the admin API or the console. Each role includes the permissions of the ones
// before it.
type Role string

const (
	Nobody   Role = ""         // may do nothing
	Viewer   Role = "viewer"   // may read
	Operator Role = "operator" // may change subjects and overrides, reset, refund, block
	Admin    Role = "admin"    // may change everything
)

var roles = []Role{Nobody, Viewer, Operator, Admin}

// May reports whether r includes the role needed. An unknown role does not include any role.
func (r Role) May(needed Role) bool { return slices.Index(roles, r) >= slices.Index(roles, needed) }

// String returns the name of the role. The empty role is "nobody".
func (r Role) String() string { return cmp.Or(string(r), "nobody") }

// ParseRole returns the role with the given name: viewer, operator or admin. For other names, it returns Nobody and
// false.
func ParseRole(name string) (Role, bool) {
	if r := Role(name); r != Nobody && slices.Contains(roles, r) {
		return r, true
	}
	return Nobody, false
}

// TokenRow describes a bearer token. Name identifies it. The row does not contain the secret.
type TokenRow struct {
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Until     string    `json:"until,omitempty"` // see [policy.ParseUntil]; empty: the token never expires
	CreatedAt time.Time `json:"created_at,omitzero"`
	Hash      TokenHash `json:"-"`
	Meta
}

// TokenHash is the SHA-256 of a token's secret. The secret is long and random, so a slow password hash is not
// needed.
type TokenHash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h TokenHash) String() string { return hex.EncodeToString(h[:]) }

// HashToken returns the hash of a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// Expired reports whether the token has expired. A token whose Until is invalid, because SQL has written it, is
// treated as expired.
func (t *TokenRow) Expired() bool {
	ends, err := policy.ParseUntil(t.Until)
	return t.Until != "" && (err != nil || !ends.After(time.Now()))
}

// LogValue keeps the hash out of logs.
func (t TokenRow) LogValue() slog.Value { return slog.StringValue(t.Name) }

// String keeps the hash out of formatted text.
func (t TokenRow) String() string { return "token " + t.Name }

// GoString returns the result of String.
func (t TokenRow) GoString() string { return t.String() }

// Entry is one entry of the audit log.
type Entry struct {
	ID     int64     `json:"id"` // IDs are ascending
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // "create", "replace" or "delete", or an action of [Database.Record]
	Kind   string    `json:"kind"`   // "settings", "rule", "rules", "tier", "subject", "override" or "token", or a kind of [Database.Record]
	// Target identifies the row: a name, or the rule of an override and its key as JSON. For "rules", it has the names.
	Target string `json:"target"`
	// Before and After are the row before and after the change. A missing row is empty. For "rules", they are lists.
	Before Row `json:"before,omitempty"`
	After  Row `json:"after,omitempty"`
}

// Row is a row of the database as JSON. A row that SQL has written may be any text.
type Row string

// MarshalJSON returns the row itself, or null if it is empty. Text that is not JSON becomes a JSON string.
func (r Row) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	if json.Valid([]byte(r)) {
		return []byte(r), nil
	}
	return json.Marshal(string(r))
}

// UnmarshalJSON keeps data unchanged.
func (r *Row) UnmarshalJSON(data []byte) error {
	*r = Row(data)
	return nil
}

// Decode decodes the row into v like encoding/json.
func (r Row) Decode(v any) error { return json.Unmarshal([]byte(r), v) }
