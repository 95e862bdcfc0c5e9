package control

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// current is the policy in force as it is written. It is not changed: after a change there is another one.
type current struct {
	document   *policy.Document // file and database; the Source of its parts says which
	file       *policy.Document // nil: there is no file
	fileBefore *policy.Document // the file before; nil: unchanged since the start
	contents   *source.Contents // of the database; nil: there is none
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
	// ID is the name of a rule or a tier, the value of a subject, or an [OverrideID].
	ID string
	// Version is that of the database at the last change of the item, 0 for one of a file.
	Version   int64
	UpdatedAt time.Time
	UpdatedBy string
	// Disabled says that a rule of the database is not in force. Only SQL disables rules.
	Disabled bool
	// Document is a *policy.Rule, *Tier, *policy.TierSubject or *policy.Override.
	Document any
}

// byID compares items by their IDs.
func byID(a, b item) int { return cmp.Compare(a.ID, b.ID) }

// FromRules is the source of a tier that only rules mention. Other sources are those of
// [source.Merge].
const FromRules = "rules"

// ETag returns the ETag of the item. Versions of a database are never reused.
func (i *item) ETag() string {
	if i.Version > 0 {
		return Quoted(strconv.FormatInt(i.Version, 10))
	}
	sum := sha256.Sum256(JSON(i.Document))
	return Quoted(source.FromFile + "-" + hex.EncodeToString(sum[:8]))
}

// Source returns where the item is from: file, database or rules.
func (i *item) Source() string {
	switch _, isTier := i.Document.(*Tier); {
	case i.Version > 0:
		return source.FromDatabase
	case isTier:
		return FromRules
	}
	return source.FromFile
}

// fileItems returns the items of a kind in the file; tiers are those of all rules.
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

// tiersOf returns the tiers that the rules of a document mention.
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
