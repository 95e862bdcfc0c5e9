package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// overrideRow is an override in a list.
type overrideRow struct {
	ID, ETag, Source, Rule, Shown, Words, Reason, By, URL string
	Until                                                 time.Time // zero: for good
	UpdatedAt                                             time.Time
	Ended, Today                                          bool
	Seen                                                  *telemetry.Subject // if it is among those that telemetry tells of
}

// EndURL is the act that ends it.
func (r overrideRow) EndURL() string {
	return "/act/end-override?" + url.Values{"override": {r.ID}}.Encode()
}

// overridesShown is what the page has.
type overridesShown struct {
	Rows         []overrideRow
	Total        int // that fit the filter
	Asked, State string
	Rule         string
	First, Next  string // pages: that one if this is a later one, and the one behind
	Database     bool
}

// Filtered reports whether there may be overrides that do not fit the filter.
func (d *overridesShown) Filtered() bool { return d.Asked+d.State+d.Rule != "" }

// How many overrides are on a page of them, and on that of a rule.
const (
	overridesPerPage = 100
	overridesOfRule  = 20
)

func (s *server) overridesPage(c *call) error {
	p, err := c.policyInForce()
	if err != nil {
		return err
	}
	q := c.URL.Query()
	d := overridesShown{Asked: strings.TrimSpace(q.Get("q")), State: q.Get("state"), Rule: q.Get("rule"), Database: p.Database}
	asked := url.Values{"limit": {strconv.Itoa(overridesPerPage)}}
	here := url.Values{}
	for name, value := range map[string]string{"q": d.Asked, "state": d.State, "rule": d.Rule} {
		if value != "" {
			asked.Set(name, value)
			here.Set(name, value)
		}
	}
	if cursor := q.Get("cursor"); cursor != "" {
		asked.Set("cursor", cursor)
		d.First = "/overrides?" + here.Encode()
	}
	page, rows, err := c.overrides(asked, s.View())
	if err != nil {
		return err
	}
	d.Rows, d.Total = rows, page.Total
	if page.Next != "" {
		here.Set("cursor", page.Next)
		d.Next = "/overrides?" + here.Encode()
	}
	return s.show(c, http.StatusOK, "overrides", pageOf("Overrides", "overrides", &d))
}

// overrides reads a page of the overrides that a query asks for: those that end next come first, those that
// have ended last.
func (c *call) overrides(q url.Values, v *telemetry.View) (page itemPage, rows []overrideRow, err error) {
	q.Set("sort", "until")
	if err := c.do("GET", "/v1/overrides?"+q.Encode(), nil, &page); err != nil {
		return page, nil, err
	}
	all := page.Items
	now := time.Now()
	for i := range all {
		o, err := decoded[policy.Override](all[i].Document)
		if err != nil {
			return page, nil, err
		}
		row := overrideRow{
			ID: all[i].ID, ETag: all[i].ETag, Source: all[i].Source, UpdatedAt: all[i].UpdatedAt,
			Rule: o.Rule, Shown: all[i].shownKey(c.s, o.Rule, o.Key), Words: overrideWords(o), Reason: o.Reason, By: o.By,
			URL: c.subjectURL(v, o.Rule, o.Key),
		}
		if o.Until != "" {
			row.Until, _ = policy.ParseUntil(o.Until) // it is in force, so it can be read
			row.Ended = !row.Until.After(now)
			row.Today = !row.Ended && row.Until.Before(now.Add(24*time.Hour))
		}
		if subject, err := c.s.Engine.Subject(o.Rule, o.Key); err == nil {
			row.Seen = seenSubject(v, o.Rule, subject.Key())
		}
		rows = append(rows, row)
	}
	return page, rows, nil
}
