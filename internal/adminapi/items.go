package adminapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Where items are from. A tier may be in no place but the rules.
const (
	fromFile     = "file"
	fromDatabase = "database"
	fromRules    = "rules"
)

// etag names what an item is now. Versions of a database are never used again.
func (i *Item) etag() string {
	if i.Version > 0 {
		return quoted(strconv.FormatInt(i.Version, 10))
	}
	sum := sha256.Sum256(encode(i.Document))
	return quoted(fromFile + "-" + hex.EncodeToString(sum[:8]))
}

func (i *Item) source() string {
	switch _, isTier := i.Document.(*Tier); {
	case i.Version > 0:
		return fromDatabase
	case isTier:
		return fromRules
	}
	return fromFile
}

// listCache has the items of the policy in force, in the order of their IDs, and its version,
// once somebody has asked for them.
type listCache struct {
	mu      sync.Mutex
	of      *Current
	items   map[Kind][]Item
	version string
}

// begin locks the cache, and empties it if it is not of the policy in force.
func (l *listCache) begin(now *Current) {
	l.mu.Lock()
	if l.of != now {
		l.of, l.items, l.version = now, map[Kind][]Item{}, ""
	}
}

// versionOf names a policy by what is written in it, so that all instances that have the same say
// the same.
func (l *listCache) versionOf(now *Current) string {
	l.begin(now)
	defer l.mu.Unlock()
	if l.version == "" {
		sum := sha256.Sum256(encode(now.Document))
		l.version = hex.EncodeToString(sum[:8])
	}
	return l.version
}

func (l *listCache) get(now *Current, kind Kind) []Item {
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
	slices.SortFunc(all, byID)
	var more []Item
	for _, i := range now.fileItems(kind) {
		if _, found := slices.BinarySearchFunc(all, i, byID); !found {
			more = append(more, i)
		}
	}
	all = append(all, more...)
	slices.SortFunc(all, byID)
	return all
}

func byID(a, b Item) int { return cmp.Compare(a.ID, b.ID) }

func (now *Current) fileItems(kind Kind) (all []Item) {
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

// find returns the item that is in force.
func (l *listCache) find(now *Current, kind Kind, id string) (Item, bool) {
	all := l.get(now, kind)
	i, found := slices.BinarySearchFunc(all, Item{ID: id}, byID)
	if !found {
		return Item{}, false
	}
	return all[i], true
}

// listed is an item in a list.
type listed struct {
	ID        string     `json:"id"`
	Source    string     `json:"source"`
	ETag      string     `json:"etag"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
	UpdatedBy string     `json:"updated_by,omitempty"`
	Disabled  bool       `json:"disabled,omitempty"`
	// Shown is what people are to see of the key, in place of it, where the caller may see no more.
	Shown string `json:"shown,omitempty"`
	// Pseudonym is that of the subject of an override that is of one alone.
	Pseudonym string `json:"pseudonym,omitempty"`
	Document  any    `json:"document"`
}

// listed is an item of a list as the caller may see it.
func (a *API) listed(i *Item, v *veil) listed {
	l := v.item(i)
	if o, is := i.Document.(*policy.Override); is && !slices.ContainsFunc(slices.Collect(maps.Values(o.Key)), many) {
		if s, err := a.Engine.Subject(o.Rule, o.Key); err == nil {
			l.Pseudonym = s.Pseudonym()
		}
	}
	return l
}

func (i *Item) listed() listed {
	l := listed{ID: i.ID, Source: i.source(), ETag: i.etag(), UpdatedBy: i.UpdatedBy, Disabled: i.Disabled, Document: i.Document}
	if !i.UpdatedAt.IsZero() {
		at := i.UpdatedAt.UTC()
		l.UpdatedAt = &at
	}
	return l
}

// page is a part of a list.
type page struct {
	Items []listed `json:"items"`
	Next  string   `json:"next,omitempty"`
	Total *int     `json:"total,omitempty"` // of all pages, where it is counted
}

// list answers with a page of a kind, of overrides only those that the query asks for.
func (a *API) list(c *call, kind Kind, q query) (any, error) {
	after, n, err := q.page()
	if err != nil {
		return nil, err
	}
	all := a.lists.get(a.Current(), kind)
	f, err := a.overrideFilter(c, q)
	switch sort, given := q.values["sort"]; {
	case err != nil:
		return nil, err
	case sort == "until":
		return a.overridesByEnd(all, f, after, n)
	case given && sort != "id":
		return nil, badParameter("sort", "write id or until")
	}
	v := f.veil
	first, found := slices.BinarySearchFunc(all, Item{ID: after}, byID)
	if found {
		first++
	}
	if kind == Subjects && v.subjects() {
		first, _ = strconv.Atoi(after) // the beginning, if it is no number
		first = max(0, first)
	}
	out := page{Items: []listed{}}
	for i := first; i < len(all); i++ {
		if o, is := all[i].Document.(*policy.Override); is && !f.wants(o) {
			continue
		}
		if len(out.Items) == n {
			out.Next = v.cursor(kind, &all[i-1], i)
			break
		}
		out.Items = append(out.Items, a.listed(&all[i], v))
	}
	return out, nil
}

// wants reports whether an override is of the rule and has the values that the query asks for.
func (q query) wants(o *policy.Override) bool {
	if rule, given := q.values["rule"]; given && o.Rule != rule {
		return false
	}
	for part, value := range q.key {
		if o.Key[part] != value {
			return false
		}
	}
	return true
}

// read answers with one item, as it is written.
func (a *API) read(kind Kind, c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	i, found := a.lists.find(a.Current(), kind, c.PathValue("id"))
	if !found {
		return nil, missing(kind)
	}
	body := i.Document
	if o, is := body.(*policy.Override); is {
		body, _ = a.veilFor(c).override(o)
	}
	return &reply{etag: i.etag(), body: body}, nil
}
