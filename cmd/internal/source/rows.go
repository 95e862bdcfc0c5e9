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

// Meta is the common part of all rows.
type Meta struct {
	// Version is the version of the database at the last change of the row. It grows with every change, and is
	// never reused. See [Match].
	Version   int64     `json:"version,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero"` // zero if it was changed by SQL
	UpdatedBy string    `json:"updated_by,omitempty"`

	fault string // the reason why the row cannot be read, or empty
}

// SettingsRow is a document without rules, subjects and overrides. A database has at most one SettingsRow; Version
// is 0 if it is missing.
type SettingsRow struct {
	Document policy.Document `json:"document"`
	Meta
}

// RuleRow is a rule, identified by its Name.
type RuleRow struct {
	policy.Rule
	// Position orders the rules; rules with the same position are ordered by name. Put with a Position of 0 leaves
	// an existing rule where it is, and appends a new one at the end.
	Position int `json:"position,omitempty"`
	// Disabled leaves the stored rule out of the policy, as if it were deleted: a rule of the same name in a file
	// applies again.
	Disabled bool `json:"disabled,omitempty"`
	Meta
}

// TierRow has the limits of a tier, by the names of rules. They replace the limits that the rules have for it under
// "tiers".
type TierRow struct {
	Name        string                   `json:"name"`
	Description string                   `json:"description,omitempty"` // for people
	Limits      map[string]policy.Limits `json:"limits,omitempty"`
	Meta
}

// SubjectRow puts a subject into a tier. Subject is a value of the key part tiers.subject, and the key of the row.
type SubjectRow struct {
	policy.TierSubject
	Meta
}

// OverrideRow is an override, identified by its Rule and Key.
type OverrideRow struct {
	ID   int64  `json:"id"` // the row's ID, which never changes
	Name string `json:"-"`  // see [OverrideName]
	policy.Override
	Meta
}

// OverrideName returns the name of the override of a rule for a key: the same in every database.
func OverrideName(rule string, key map[string]string) string {
	text, _ := json.Marshal(key) // no error: a map of strings can be encoded
	sum := sha256.Sum256([]byte(rule + "\x00" + string(text)))
	return hex.EncodeToString(sum[:8])
}

// Role is the role of a caller of the admin API or the console. Each role includes the earlier ones.
type Role string

const (
	Nobody   Role = ""         // may do nothing
	Viewer   Role = "viewer"   // may read
	Operator Role = "operator" // may change subjects and overrides, reset, refund, block
	Admin    Role = "admin"    // may change everything
)

var roles = []Role{Nobody, Viewer, Operator, Admin}

// May reports whether r includes needed. An unknown role includes none.
func (r Role) May(needed Role) bool { return slices.Index(roles, r) >= slices.Index(roles, needed) }

// String returns the name of the role. The empty role is "nobody".
func (r Role) String() string { return cmp.Or(string(r), "nobody") }

// ParseRole returns the role of that name, viewer, operator or admin, and Nobody for any other.
func ParseRole(name string) (Role, bool) {
	if r := Role(name); r != Nobody && slices.Contains(roles, r) {
		return r, true
	}
	return Nobody, false
}

// TokenRow describes a bearer token, identified by its Name. It does not contain the secret.
type TokenRow struct {
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Until     string    `json:"until,omitempty"` // see [policy.ParseUntil]; empty: never
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

// Expired reports whether the token has expired. A token counts as expired if its Until cannot be
// parsed, because SQL has written it.
func (t *TokenRow) Expired() bool {
	ends, err := policy.ParseUntil(t.Until)
	return t.Until != "" && (err != nil || !ends.After(time.Now()))
}

// LogValue keeps the hash out of logs.
func (t TokenRow) LogValue() slog.Value { return slog.StringValue(t.Name) }

// String keeps the hash out of everything else.
func (t TokenRow) String() string { return "token " + t.Name }

// GoString is String.
func (t TokenRow) GoString() string { return t.String() }

// Entry is one line of the audit log.
type Entry struct {
	ID     int64     `json:"id"` // IDs are ascending
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // "create", "replace" or "delete", or an action of [Database.Record]
	Kind   string    `json:"kind"`   // "settings", "rule", "tier", "subject", "override" or "token", or a kind of [Database.Record]
	// Target identifies the row: a name, or the rule of an override and its key as JSON.
	Target string `json:"target"`
	// Before and After are the rows before and after the change. A missing row is empty.
	Before Row `json:"before,omitempty"`
	After  Row `json:"after,omitempty"`
}

// Row is a row of the database as JSON. If SQL has written it, it may be any text.
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

// UnmarshalJSON keeps data as it is.
func (r *Row) UnmarshalJSON(data []byte) error {
	*r = Row(data)
	return nil
}

// Decode reads the fields of the row into v, as package encoding/json does.
func (r Row) Decode(v any) error { return json.Unmarshal([]byte(r), v) }
