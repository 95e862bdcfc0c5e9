package adminapi

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

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
func (a *API) listed(i *control.Item, v *veil) listed {
	l := v.item(i)
	if o, is := i.Document.(*policy.Override); is && !slices.ContainsFunc(slices.Collect(maps.Values(o.Key)), many) {
		if s, err := a.Engine.Subject(o.Rule, o.Key); err == nil {
			l.Pseudonym = s.Pseudonym()
		}
	}
	return l
}

func listedOf(i *control.Item) listed {
	l := listed{ID: i.ID, Source: i.Source(), ETag: i.ETag(), UpdatedBy: i.UpdatedBy, Disabled: i.Disabled, Document: i.Document}
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
func (a *API) list(c *call, kind control.Kind, q query) (any, error) {
	after, n, err := q.page()
	if err != nil {
		return nil, err
	}
	all := a.lists.Get(a.Policy.Now(), kind)
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
	first, found := slices.BinarySearchFunc(all, control.Item{ID: after}, control.ByID)
	if found {
		first++
	}
	if kind == control.Subjects && v.subjects() {
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
func (a *API) read(kind control.Kind, c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	i, found := a.lists.Find(a.Policy.Now(), kind, c.PathValue("id"))
	if !found {
		return nil, missing(kind)
	}
	body := i.Document
	if o, is := body.(*policy.Override); is {
		body, _ = a.veilFor(c).override(o)
	}
	return &reply{etag: i.ETag(), body: body}, nil
}
