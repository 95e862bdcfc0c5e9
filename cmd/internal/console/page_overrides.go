package console

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// overrideRow is an override in a list.
type overrideRow struct {
	ID, Source, Rule, Shown, Words, Reason, By, URL string
	Until                                           time.Time // zero: the override does not end
	Ended, Today                                    bool
	Seen                                            *telemetry.Subject // nil: telemetry does not know the subject
}

// EndURL returns the URL of the act that ends the override.
func (r overrideRow) EndURL() string {
	return "/act/end-override?" + url.Values{"override": {r.ID}}.Encode()
}

// overridesShown is the data of the page "Overrides".
type overridesShown struct {
	Rows         []overrideRow
	Total        int // the number of overrides that match the filter
	Asked, State string
	Rule         string
	First, Next  string // links to the first page and the next page; First is "" on the first page
	Database     bool
}

// Filtered reports whether the list has a filter.
func (d *overridesShown) Filtered() bool { return d.Asked+d.State+d.Rule != "" }

// The numbers of overrides on the page "Overrides" and on the page of a rule.
const (
	overridesPerPage = 100
	overridesOfRule  = 20
)

func (s *server) overridesPage(c *call) error {
	q := c.URL.Query()
	d := overridesShown{Asked: strings.TrimSpace(q.Get("q")), State: q.Get("state"), Rule: q.Get("rule"), Database: c.policy.Database}
	here := url.Values{}
	for name, value := range map[string]string{"q": d.Asked, "state": d.State, "rule": d.Rule} {
		if value != "" {
			here.Set(name, value)
		}
	}
	cursor := q.Get("cursor")
	if cursor != "" {
		d.First = "/overrides?" + here.Encode()
	}
	page, rows, err := c.overrides(control.Query{Cursor: cursor, Limit: overridesPerPage, Text: d.Asked, State: d.State, Rule: d.Rule}, c.view())
	if err != nil {
		return err
	}
	d.Rows, d.Total = rows, *page.Total
	if page.Next != "" {
		here.Set("cursor", page.Next)
		d.Next = "/overrides?" + here.Encode()
	}
	return s.show(c, http.StatusOK, "overrides", pageOf("Overrides", "overrides", &d))
}

// overrides returns a page of the overrides that match a query. Overrides that end soon come first; those that have
// ended come last.
func (c *call) overrides(q control.Query, v *telemetry.View) (page *control.Page, rows []overrideRow, err error) {
	q.Sort = "until"
	if page, err = c.s.Control.List(c.caller, control.Overrides, q); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	for i := range page.Items {
		it := &page.Items[i]
		o := it.Document.(*policy.Override)
		row := overrideRow{ID: it.ID, Source: it.Source, Rule: o.Rule, Words: overrideWords(o), Reason: o.Reason, By: o.By}
		row.Seen, row.URL = c.link(v, o.Rule, o.Key)
		if row.Shown = withPseudonym(it.Shown, it.Pseudonym); it.Shown == "" {
			row.Shown = c.shownOverride(o.Rule, o.Key)
		}
		if o.Until != "" {
			row.Until, _ = policy.ParseUntil(o.Until) // the override is valid, so its end can be parsed
			row.Ended = !row.Until.After(now)
			row.Today = !row.Ended && row.Until.Before(now.Add(24*time.Hour))
		}
		rows = append(rows, row)
	}
	return page, rows, nil
}
