package adminapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
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

// settingsVersion is 0 if there are none.
func (c *Current) settingsVersion() int64 {
	if c.Settings == nil {
		return 0
	}
	return c.Settings.Version
}

// Database keeps what operators change, and the log of it. What is changed is in force here when
// Put and Delete return, unless they are dry: then they only say what is wrong with a change.
//
// Their errors are a [policy.Errors] for what makes no policy, one of [Invalid] for what cannot be
// kept, [ErrConflict], [ErrNotFound] of what is to be deleted, or [ErrAway].
type Database interface {
	// Put creates or replaces an item if its version is match: [Absent], [Any], or the one that
	// was seen.
	Put(ctx context.Context, actor string, kind Kind, i Item, match int64, dry bool) (Item, error)
	// PutAll puts several items in one transaction, each if its version is the one that it has.
	PutAll(ctx context.Context, actor string, kind Kind, all []Item, dry bool) ([]Item, error)
	Delete(ctx context.Context, actor string, kind Kind, id string, match int64, dry bool) error
	// PutShadow makes the whole policy a shadow until a time, or "always", or enforces it if that is
	// empty, if the settings have the version match.
	PutShadow(ctx context.Context, actor, until string, match int64, dry bool) error
	// LastChange returns the entries of the audit log of the last change of rules, tiers and
	// settings, in their order.
	LastChange(ctx context.Context) ([]Entry, error)
	// ChangeRules changes several rules in one transaction, and returns the ID of its one entry in the
	// audit log, which is 0 if nothing differs, and the policy that comes of it.
	ChangeRules(ctx context.Context, actor string, all []RuleChange, dry bool) (entry int64, p *policy.Policy, err error)
	// Restore takes that change back, of which the last entry has an ID, and returns what begins
	// anew by that.
	Restore(ctx context.Context, actor string, entry int64, dry bool) ([]policy.Restart, error)
	// Record writes an audit entry for what do does, which is nothing in the database, and only
	// if do has no error.
	Record(ctx context.Context, e Entry, do func() error) error
	// Audit returns up to n entries, the newest first, all of them older than the one with the
	// ID before if that is not 0.
	Audit(ctx context.Context, before int64, n int) ([]Entry, error)
}

// RuleChange is what becomes of one rule. It requires the version Match of the rule's row: see Put.
type RuleChange struct {
	Name  string
	Rule  *policy.Rule // nil: it is deleted
	Match int64
}

// Versions that an item may have to have.
const (
	Any    int64 = -1 // whatever there is
	Absent int64 = 0  // there is none
)

// ErrNotFound is matched by errors of what is not there.
var ErrNotFound = errors.New("it is not there")

// ErrConflict is matched by errors of changes of an item that has another version.
var ErrConflict = errors.New("somebody else has changed it")

// ConflictsOf is an [ErrConflict] about the items of these IDs.
type ConflictsOf []string

func (c ConflictsOf) Error() string        { return "somebody else has changed " + strings.Join(c, ", ") }
func (c ConflictsOf) Is(target error) bool { return target == ErrConflict }

// Invalid is the error of a document of which a field, such as "until", cannot be kept.
func Invalid(field, message string) error { return badField("/"+field, "%s", message) }

// ErrAway is matched by errors that say that the database does not answer.
var ErrAway = errors.New("the database does not answer")

// ErrFull is matched by errors that say that the disk of the database is full. So is ErrAway.
var ErrFull error = fullError{}

type fullError struct{}

func (fullError) Error() string        { return "the disk of the database is full" }
func (fullError) Is(target error) bool { return target == ErrAway }

// Entry is what one change was, for the audit log.
type Entry struct {
	ID     int64           `json:"id"`
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"` // "create", "replace", "delete", "reset", "refund", "unblock" or "take"
	Kind   string          `json:"kind"`
	Target string          `json:"target"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}
