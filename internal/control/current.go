package control

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
)

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

// byID compares items by their IDs.
func byID(a, b item) int { return cmp.Compare(a.ID, b.ID) }

// FromRules is where a tier is from that is in no place but the rules. Other items are from where [source.Merge]
// says.
const FromRules = "rules"

// ETag names what an item is now. Versions of a database are never used again.
func (i *item) ETag() string {
	if i.Version > 0 {
		return Quoted(strconv.FormatInt(i.Version, 10))
	}
	sum := sha256.Sum256(JSON(i.Document))
	return Quoted(source.FromFile + "-" + hex.EncodeToString(sum[:8]))
}

// Source says where the item is from: file, database or rules.
func (i *item) Source() string {
	switch _, isTier := i.Document.(*Tier); {
	case i.Version > 0:
		return source.FromDatabase
	case isTier:
		return FromRules
	}
	return source.FromFile
}

// fileItems returns what the file has of a kind, and of tiers what the rules have.
func (now *current) fileItems(kind Kind) (all []item) {
	doc := now.file
	switch {
	case kind == Tiers:
		return tiersOf(now.document)
	case doc == nil:
	case kind == Rules:
		for i := range doc.Rules {
			all = append(all, item{ID: doc.Rules[i].Name, Document: &doc.Rules[i]})
		}
	case kind == Overrides:
		for i := range doc.Overrides {
			o := &doc.Overrides[i]
			all = append(all, item{ID: OverrideID(o.Rule, o.Key), Document: o})
		}
	case kind == Subjects:
		for i := range doc.Subjects {
			all = append(all, item{ID: doc.Subjects[i].Subject, Document: &doc.Subjects[i]})
		}
	}
	return all
}

// tiersOf returns the tiers of a document by themselves.
func tiersOf(doc *policy.Document) (all []item) {
	byName := map[string]*Tier{}
	for _, r := range doc.Rules {
		for name, limits := range r.Tiers {
			t := byName[name]
			if t == nil {
				t = &Tier{Name: name, Limits: map[string]policy.Limits{}}
				byName[name] = t
				all = append(all, item{ID: name, Document: t})
			}
			t.Limits[r.Name] = limits
		}
	}
	return all
}
