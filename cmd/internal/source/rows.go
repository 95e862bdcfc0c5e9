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
	// Version is that of the last change of the row: it grows with every change, and is never
	// used again. See [Match].
	Version   int64     `json:"version,omitempty"`
	UpdatedAt time.Time `json:"updated_at,omitzero"` // zero if it was changed by SQL
	UpdatedBy string    `json:"updated_by,omitempty"`

	fault string // why the row cannot be read
}

// SettingsRow is everything of a document but its rules, subjects and overrides. A database has at most one; its
// Version is 0 if it is missing.
type SettingsRow struct {
	Document policy.Document `json:"document"`
	Meta
}

// RuleRow is a rule. Its Name finds it.
type RuleRow struct {
	policy.Rule
	// Position orders the rules; those of the same by name. Put with 0 leaves it as it is, and
	// puts a new one last.
	Position int `json:"position,omitempty"`
	// Disabled keeps the rule and leaves it out of the policy, as if it were not there: a rule
	// of that name in a file holds again.
	Disabled bool `json:"disabled,omitempty"`
	Meta
}

// TierRow is the limits of a tier, by the names of rules. They take the place of those that the
// rules have under "tiers".
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

// OverrideRow is an override. Its Rule and Key find it.
type OverrideRow struct {
	ID   int64  `json:"id"` // of the row, which keeps it
	Name string `json:"-"`  // see [OverrideName]
	policy.Override
	Meta
}

// OverrideName returns the name of the override of a rule for a key: the same in every database.
func OverrideName(rule string, key map[string]string) string {
	text, _ := json.Marshal(key) // a map of strings always can
	sum := sha256.Sum256([]byte(rule + "\x00" + string(text)))
	return hex.EncodeToString(sum[:8])
}

// Role is what a caller of the admin API and the console may do. Each includes those before it.
type Role string

const (
	Nobody   Role = ""         // nothing
	Viewer   Role = "viewer"   // look
	Operator Role = "operator" // change subjects and overrides, reset, refund, block
	Admin    Role = "admin"    // change everything
)

var roles = []Role{Nobody, Viewer, Operator, Admin}

// May reports whether r includes needed. An unknown role includes none.
func (r Role) May(needed Role) bool { return slices.Index(roles, r) >= slices.Index(roles, needed) }

// String returns the name of the role. That of the empty role is "nobody".
func (r Role) String() string { return cmp.Or(string(r), "nobody") }

// ParseRole returns the role of that name, viewer, operator or admin, and Nobody for any other.
func ParseRole(name string) (Role, bool) {
	if r := Role(name); r != Nobody && slices.Contains(roles, r) {
		return r, true
	}
	return Nobody, false
}

// TokenRow is a bearer token, without what only its bearer has. Its Name finds it.
type TokenRow struct {
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Until     string    `json:"until,omitempty"` // see [policy.ParseUntil]; empty: for ever
	CreatedAt time.Time `json:"created_at,omitzero"`
	Hash      TokenHash `json:"-"`
	Meta
}

// TokenHash is the SHA-256 of what the bearer of a token has. That is long and random, so that nothing slower is
// needed.
type TokenHash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h TokenHash) String() string { return hex.EncodeToString(h[:]) }

// HashToken returns the hash of a token.
func HashToken(token string) TokenHash { return sha256.Sum256([]byte(token)) }

// Expired reports whether the token has ended. One with an end that cannot be read, written by SQL, has.
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
	ID     int64     `json:"id"` // they grow
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // "create", "replace" or "delete", or what [Database.Record] was given
	Kind   string    `json:"kind"`   // "settings", "rule", "tier", "subject", "override" or "token", or likewise
	// Target is what finds the row: a name, or the rule of an override and its key as JSON.
	Target string `json:"target"`
	// Before and After are empty where there was or is no row.
	Before Row `json:"before,omitempty"`
	After  Row `json:"after,omitempty"`
}

// Row is a row of the database as JSON. One that was written by SQL may be any text.
type Row string

// MarshalJSON returns the row itself, null for none, and as a string what is no JSON.
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
