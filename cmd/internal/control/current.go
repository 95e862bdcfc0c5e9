package control

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// current is the policy in force as written in its sources. It is immutable: a change of the policy makes a new
// current.
type current struct {
	document   *policy.Document // the file and the database together; each item has its Source
	file       *policy.Document // nil without a file
	fileBefore *policy.Document // the previous file; nil: unchanged since the start
	contents   *source.Contents // the database; nil without one

	version func() string          // a hash of the document, the same on all instances with the same policy
	lists   map[Kind]func() []item // sorted by ID
}

func currentOf(stack *source.Stack) *current {
	now := &current{lists: map[Kind]func() []item{}}
	// The document is read before the file. If the policy changes in between, the document is older than the file. The
	// next call of written.now notices that the document is not the one in force, and makes a new current.
	now.document, now.contents = stack.Document()
	now.file, now.fileBefore = stack.FileDocument(), stack.FileBefore()
	now.version = sync.OnceValue(func() string {
		sum := sha256.Sum256(JSON(now.document))
		return hex.EncodeToString(sum[:8])
	})
	for _, kind := range Kinds {
		now.lists[kind] = sync.OnceValue(func() []item { return now.items(kind) })
	}
	return now
}

// find returns the item with the given ID.
func (now *current) find(kind Kind, id string) (item, bool) {
	all := now.lists[kind]()
	i, found := slices.BinarySearchFunc(all, item{ID: id}, byID)
	if !found {
		return item{}, false
	}
	return all[i], true
}

// settingsVersion returns the version of the settings in the database, or 0 if it has none.
func (now *current) settingsVersion() int64 {
	if now.contents == nil {
		return 0
	}
	return now.contents.Settings.Version
}

// fileShadow returns the field Shadow of the file, or "".
func (now *current) fileShadow() string {
	if now.file == nil {
		return ""
	}
	return now.file.Shadow
}

// databaseShadow returns the field Shadow of the settings in the database, or "".
func (now *current) databaseShadow() string {
	if now.settingsVersion() == 0 {
		return ""
	}
	return now.contents.Settings.Document.Shadow
}

// item is a rule, tier, subject or override of the database or the file, or a tier that only rules mention. An [Item]
// is made from it.
type item struct {
	// ID is the name of a rule or a tier, the value of a subject, or a [source.OverrideName].
	ID string
	// Version is the version of the database at the last change of the item. It is 0 for an item of a file, and for a
	// tier that only rules mention.
	Version   int64
	UpdatedAt time.Time
	UpdatedBy string
	// Disabled is true for a rule of the database that is not in force. Rules are disabled only by SQL.
	Disabled bool
	// Document is a *policy.Rule, *Tier, *policy.TierSubject or *policy.Override.
	Document any
}

// byID compares items by ID.
func byID(a, b item) int { return cmp.Compare(a.ID, b.ID) }

// FromRules is the source of a tier that only rules mention. The other sources are [source.FromFile] and
// [source.FromDatabase].
const FromRules = "rules"

// ETag returns the ETag of the item. Versions of a database are never reused.
func (i *item) ETag() string {
	if i.Version > 0 {
		return Quoted(strconv.FormatInt(i.Version, 10))
	}
	sum := sha256.Sum256(JSON(i.Document))
	return Quoted(source.FromFile + "-" + hex.EncodeToString(sum[:8]))
}

// Source returns the source of the item: file, database or rules.
func (i *item) Source() string {
	switch _, isTier := i.Document.(*Tier); {
	case i.Version > 0:
		return source.FromDatabase
	case isTier:
		return FromRules
	}
	return source.FromFile
}

// items returns the items of a kind: the rows of the database, and the items of the file that no row replaces.
func (now *current) items(kind Kind) []item {
	all := now.rows(kind)
	slices.SortFunc(all, byID)
	rows := all[:len(all):len(all)]
	for _, i := range now.fileItems(kind) {
		if _, found := slices.BinarySearchFunc(rows, i, byID); !found {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, byID)
	return all
}

// rows returns the rows of a kind in the database.
func (now *current) rows(kind Kind) []item {
	c := now.contents
	switch {
	case c == nil:
		return nil
	case kind == Rules:
		return itemsOf(c.Rules, ruleItem)
	case kind == Tiers:
		return itemsOf(c.Tiers, tierItem)
	case kind == Subjects:
		return itemsOf(c.Subjects, subjectItem)
	}
	return itemsOf(c.Overrides, overrideItem)
}

// fileItems returns the items of a kind in the file. For tiers, it returns those that any rule in force mentions.
func (now *current) fileItems(kind Kind) []item {
	doc := now.file
	switch {
	case kind == Tiers:
		return tiersOf(now.document)
	case doc == nil:
		return nil
	case kind == Rules:
		return itemsOf(doc.Rules, func(r *policy.Rule) item { return item{ID: r.Name, Document: r} })
	case kind == Subjects:
		return itemsOf(doc.Subjects, func(s *policy.TierSubject) item { return item{ID: s.Subject, Document: s} })
	}
	return itemsOf(doc.Overrides, func(o *policy.Override) item { return item{ID: source.OverrideName(o.Rule, o.Key), Document: o} })
}

func itemsOf[T any](list []T, of func(*T) item) []item {
	all := make([]item, len(list))
	for i := range list {
		all[i] = of(&list[i])
	}
	return all
}

func rowItem(id string, m *source.Meta, document any) item {
	return item{ID: id, Version: m.Version, UpdatedAt: m.UpdatedAt, UpdatedBy: m.UpdatedBy, Document: document}
}

func ruleItem(r *source.RuleRow) item {
	i := rowItem(r.Name, &r.Meta, &r.Rule)
	i.Disabled = r.Disabled
	return i
}

func tierItem(r *source.TierRow) item {
	return rowItem(r.Name, &r.Meta, &Tier{Name: r.Name, Description: r.Description, Limits: r.Limits})
}

func subjectItem(r *source.SubjectRow) item {
	return rowItem(r.Subject, &r.Meta, &r.TierSubject)
}

func overrideItem(r *source.OverrideRow) item {
	return rowItem(r.Name, &r.Meta, &r.Override)
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
