package control

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Item is a rule, tier, subject or override in force.
type Item struct {
	ID        string     `json:"id"`
	Source    string     `json:"source"`
	ETag      string     `json:"etag"`
	UpdatedAt *time.Time `json:"updated_at,omitempty"`
	UpdatedBy string     `json:"updated_by,omitempty"`
	Disabled  bool       `json:"disabled,omitempty"`
	// Shown replaces the key of an override if the caller may not see the key.
	Shown string `json:"shown,omitempty"`
	// Pseudonym is the pseudonym of the subject, for an override that applies to only one.
	Pseudonym string `json:"pseudonym,omitempty"`
	// Document is a *policy.Rule, *Tier, *policy.TierSubject or *policy.Override.
	Document any `json:"document"`
}

// listed returns an item in the form that the caller may see.
func (c *Control) listed(i *item, v *veil) Item {
	l := v.item(i)
	if o, is := i.Document.(*policy.Override); is {
		if s, single := c.single(o.Rule, o.Key); single {
			l.Pseudonym = s.Pseudonym()
		}
	}
	return l
}

func listedOf(i *item) Item {
	return Item{ID: i.ID, Source: i.Source(), ETag: i.ETag(), UpdatedAt: timeOf(i.UpdatedAt), UpdatedBy: i.UpdatedBy, Disabled: i.Disabled, Document: i.Document}
}

// Page is a part of a list.
type Page struct {
	Items []Item `json:"items"`
	Next  string `json:"next,omitempty"`
	Total *int   `json:"total,omitempty"` // the number of items on all pages, if counted
}

// Query selects a page of a list. An empty field does not restrict the list.
type Query struct {
	Cursor string // Next of the previous page
	Limit  int    // items on a page; 0: 100
	// The following fields select overrides: by rule, by values of key parts, by a text in any field, and by State,
	// which is "today", "ended" or "blocks".
	Rule  string
	Key   map[string]string
	Text  string
	State string
	Sort  string // the order of overrides: "" or "id", or "until"
}

// List returns a page of the items of a kind.
func (c *Control) List(who Caller, kind Kind, q Query) (*Page, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	after, n, err := position(q.Cursor, q.Limit)
	if err != nil {
		return nil, err
	}
	all := c.policy.now().lists[kind]()
	f, err := c.overrideFilter(who, q)
	switch {
	case err != nil:
		return nil, err
	case q.Sort == "until":
		return c.overridesByEnd(all, f, after, n)
	case q.Sort != "" && q.Sort != "id":
		return nil, BadParameter("sort", "write id or until")
	}
	v := f.veil
	first, found := slices.BinarySearchFunc(all, item{ID: after}, byID)
	if found {
		first++
	}
	if kind == Subjects && v.subjects() {
		first, _ = strconv.Atoi(after) // 0 if after is not a number
		first = max(0, first)
	}
	out := &Page{Items: []Item{}}
	for i := first; i < len(all); i++ {
		if o, is := all[i].Document.(*policy.Override); is && !f.wants(o) {
			continue
		}
		if len(out.Items) == n {
			out.Next = v.cursor(kind, &all[i-1], i)
			break
		}
		out.Items = append(out.Items, c.listed(&all[i], v))
	}
	return out, nil
}

// defaultPage is the size of a page with limit 0.
const defaultPage = 100

// position returns the name after which a page starts, and the size of the page. cursor and limit come from a
// query.
func position(cursor string, limit int) (after string, n int, err error) {
	name, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", 0, badCursor()
	}
	return string(name), cmp.Or(limit, defaultPage), nil
}

func badCursor() *Problem {
	return BadParameter("cursor", "not a cursor of this API")
}

// cursorBehind returns the cursor of a page that starts after a name.
func cursorBehind(name string) string { return base64.RawURLEncoding.EncodeToString([]byte(name)) }

// wants reports whether an override has the rule and the values of the query.
func (q *Query) wants(o *policy.Override) bool {
	if q.Rule != "" && o.Rule != q.Rule {
		return false
	}
	for part, value := range q.Key {
		if o.Key[part] != value {
			return false
		}
	}
	return true
}

// Read returns one item. Its document is complete, except for a key that the caller may not see.
func (c *Control) Read(who Caller, kind Kind, id string) (*Item, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	i, found := c.policy.now().find(kind, id)
	if !found {
		return nil, missing(kind)
	}
	var v *veil
	if kind == Overrides {
		v = c.veilFor(who)
	}
	l := c.listed(&i, v)
	return &l, nil
}

// missing returns the problem of an unknown item.
func missing(kind Kind) *Problem {
	return Problemf(http.StatusNotFound, "no %s has this name", kind)
}
