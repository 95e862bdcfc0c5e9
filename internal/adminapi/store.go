package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

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
	// Document is a *policy.Rule, *Tier, *policy.TierSubject or *policy.Override.
	Document any
}

// OverrideID returns a name for the override of a rule for the subject with that key.
func OverrideID(rule string, key map[string]string) string {
	text, _ := json.Marshal(key) // a map of texts always can be
	sum := sha256.Sum256([]byte(rule + "\x00" + string(text)))
	return hex.EncodeToString(sum[:8])
}

// Current is the policy in force as it is written. It is not changed.
type Current struct {
	// Document is all of it. Source of its parts says where they come from.
	Document *policy.Document
	// File is what the file of it has; nil if there is none.
	File *policy.Document
	// Version names it, also for other processes that have the same.
	Version string
	// Rows returns what the database has of a kind; nil if there is none.
	Rows func(Kind) []Item
}

// Database keeps what operators change, and the log of it.
type Database interface {
	// Change runs fn in a transaction and writes its audit entries for the actor. It commits
	// only if the policy that comes of it compiles, and returns once that is in force here; if
	// dry, it never commits. Its errors are those of fn, a [policy.Errors] for what does not
	// compile, or [ErrAway].
	Change(ctx context.Context, actor string, dry bool, fn func(Tx) error) error
	// Record writes an audit entry for what do does, which is nothing in the database, and only
	// if do has no error.
	Record(ctx context.Context, e Entry, do func() error) error
	// Audit returns up to n entries, the newest first, all of them older than the one with the
	// ID before if that is not 0.
	Audit(ctx context.Context, before int64, n int) ([]Entry, error)
}

// Tx is a transaction. What it has read stays as it is until it ends.
type Tx interface {
	Get(Kind, string) (Item, bool, error)
	Put(Kind, Item) (Item, error)
	Delete(Kind, string) error
}

// ErrAway is matched by errors that say that the database does not answer.
var ErrAway = errors.New("the database does not answer")

// Entry is what one change was, for the audit log.
type Entry struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"` // "put", "delete", "reset", "refund", "block" or "unblock"
	Kind   string          `json:"kind"`
	Target string          `json:"target"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}
