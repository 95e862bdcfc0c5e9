package control

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/sluicehq/sluice/policy"
)

// Where items are from. A tier may be in no place but the rules.
const (
	FromFile     = "file"
	FromDatabase = "database"
	FromRules    = "rules"
)

// ETag names what an item is now. Versions of a database are never used again.
func (i *Item) ETag() string {
	if i.Version > 0 {
		return Quoted(strconv.FormatInt(i.Version, 10))
	}
	sum := sha256.Sum256(JSON(i.Document))
	return Quoted(FromFile + "-" + hex.EncodeToString(sum[:8]))
}

// Source says where the item is from: file, database or rules.
func (i *Item) Source() string {
	switch _, isTier := i.Document.(*Tier); {
	case i.Version > 0:
		return FromDatabase
	case isTier:
		return FromRules
	}
	return FromFile
}

// Lists has the items of the policy in force, in the order of their IDs, and its version,
// once somebody has asked for them.
type Lists struct {
	mu      sync.Mutex
	of      *Current
	items   map[Kind][]Item
	version string
}

// begin locks the cache, and empties it if it is not of the policy in force.
func (l *Lists) begin(now *Current) {
	l.mu.Lock()
	if l.of != now {
		l.of, l.items, l.version = now, map[Kind][]Item{}, ""
	}
}

// VersionOf names a policy by what is written in it, so that all instances that have the same say
// the same.
func (l *Lists) VersionOf(now *Current) string {
	l.begin(now)
	defer l.mu.Unlock()
	if l.version == "" {
		sum := sha256.Sum256(JSON(now.Document))
		l.version = hex.EncodeToString(sum[:8])
	}
	return l.version
}

// Get returns the items of a kind, in the order of their IDs.
func (l *Lists) Get(now *Current, kind Kind) []Item {
	l.begin(now)
	defer l.mu.Unlock()
	if _, known := l.items[kind]; !known {
		l.items[kind] = now.items(kind)
	}
	return l.items[kind]
}

// items returns what the database has of a kind, and what the file has and the database has not.
func (now *Current) items(kind Kind) []Item {
	var all []Item
	if now.Rows != nil {
		all = slices.Clone(now.Rows(kind))
	}
	slices.SortFunc(all, ByID)
	var more []Item
	for _, i := range now.FileItems(kind) {
		if _, found := slices.BinarySearchFunc(all, i, ByID); !found {
			more = append(more, i)
		}
	}
	all = append(all, more...)
	slices.SortFunc(all, ByID)
	return all
}

// ByID compares items by their IDs.
func ByID(a, b Item) int { return cmp.Compare(a.ID, b.ID) }

// FileItems returns what the file has of a kind, and of tiers what the rules have.
func (now *Current) FileItems(kind Kind) (all []Item) {
	doc := now.File
	switch {
	case kind == Tiers:
		return tiersOf(now.Document)
	case doc == nil:
	case kind == Rules:
		for i := range doc.Rules {
			all = append(all, Item{ID: doc.Rules[i].Name, Document: &doc.Rules[i]})
		}
	case kind == Overrides:
		for i := range doc.Overrides {
			o := &doc.Overrides[i]
			all = append(all, Item{ID: OverrideID(o.Rule, o.Key), Document: o})
		}
	case kind == Subjects:
		for i := range doc.Subjects {
			all = append(all, Item{ID: doc.Subjects[i].Subject, Document: &doc.Subjects[i]})
		}
	}
	return all
}

// tiersOf returns the tiers of a document by themselves.
func tiersOf(doc *policy.Document) (all []Item) {
	byName := map[string]*Tier{}
	for _, r := range doc.Rules {
		for name, limits := range r.Tiers {
			t := byName[name]
			if t == nil {
				t = &Tier{Name: name, Limits: map[string]policy.Limits{}}
				byName[name] = t
				all = append(all, Item{ID: name, Document: t})
			}
			t.Limits[r.Name] = limits
		}
	}
	return all
}

// Find returns the item that is in force.
func (l *Lists) Find(now *Current, kind Kind, id string) (Item, bool) {
	all := l.Get(now, kind)
	i, found := slices.BinarySearchFunc(all, Item{ID: id}, ByID)
	if !found {
		return Item{}, false
	}
	return all[i], true
}

// Quoted returns a version as an ETag.
func Quoted(version string) string { return fmt.Sprintf("%q", version) }

// JSON returns v as JSON in which "<" is "<".
func JSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("control: %T is no JSON: %v", v, err)) // only plain data gets here
	}
	return b.Bytes()
}
