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
func (i *item) ETag() string {
	if i.Version > 0 {
		return Quoted(strconv.FormatInt(i.Version, 10))
	}
	sum := sha256.Sum256(JSON(i.Document))
	return Quoted(FromFile + "-" + hex.EncodeToString(sum[:8]))
}

// Source says where the item is from: file, database or rules.
func (i *item) Source() string {
	switch _, isTier := i.Document.(*Tier); {
	case i.Version > 0:
		return FromDatabase
	case isTier:
		return FromRules
	}
	return FromFile
}

// lists keeps the items of the policy in force, in the order of their IDs, and its version.
type lists struct {
	written *written
	mu      sync.Mutex
	of      *current
	items   map[Kind][]item
	version string
}

// begin locks the cache, and empties it if it is not of the policy in force.
func (l *lists) begin(now *current) {
	l.mu.Lock()
	if l.of != now {
		l.of, l.items, l.version = now, map[Kind][]item{}, ""
	}
}

// versionOf returns a name for a policy, made of its document: instances with the same policy return the same.
func (l *lists) versionOf(now *current) string {
	l.begin(now)
	defer l.mu.Unlock()
	if l.version == "" {
		sum := sha256.Sum256(JSON(now.document))
		l.version = hex.EncodeToString(sum[:8])
	}
	return l.version
}

// get returns the items of a kind, in the order of their IDs.
func (l *lists) get(kind Kind) []item {
	now := l.written.now()
	l.begin(now)
	defer l.mu.Unlock()
	if _, known := l.items[kind]; !known {
		l.items[kind] = l.written.items(now, kind)
	}
	return l.items[kind]
}

// byID compares items by their IDs.
func byID(a, b item) int { return cmp.Compare(a.ID, b.ID) }

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

// find returns the item that is in force.
func (l *lists) find(kind Kind, id string) (item, bool) {
	all := l.get(kind)
	i, found := slices.BinarySearchFunc(all, item{ID: id}, byID)
	if !found {
		return item{}, false
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
