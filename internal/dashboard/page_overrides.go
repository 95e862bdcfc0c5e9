package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
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
	All          int
	Asked, State string
	Rule         string
	Cut, More    bool // rows are left out, and there are more than were read
	Database     bool
}

const maxOverrides = 500

func (s *server) overridesPage(c *call) error {
	p, err := c.policyInForce()
	if err != nil {
		return err
	}
	q := c.URL.Query()
	d := overridesShown{Asked: strings.TrimSpace(q.Get("q")), State: q.Get("state"), Rule: q.Get("rule"), Database: p.Database}
	rows, more, err := c.overridesOf(d.Rule, s.View())
	if err != nil {
		return err
	}
	d.All, d.More = len(rows), more
	rows = slices.DeleteFunc(rows, func(r overrideRow) bool { return !d.wants(&r) })
	d.Cut = len(rows) > maxOverrides
	d.Rows = rows[:min(len(rows), maxOverrides)]
	return s.show(c, http.StatusOK, "overrides", pageOf("Overrides", "overrides", d))
}

func (d *overridesShown) wants(r *overrideRow) bool {
	switch d.State {
	case "today":
		if !r.Today {
			return false
		}
	case "ended":
		if !r.Ended {
			return false
		}
	case "blocks":
		if r.Words != "blocked" {
			return false
		}
	}
	if d.Asked == "" {
		return true
	}
	text := strings.ToLower(strings.Join([]string{r.Rule, r.Shown, r.Words, r.Reason, r.By, r.Source}, " "))
	return strings.Contains(text, strings.ToLower(d.Asked))
}

// overridesOf reads the overrides of a rule, or all: those that end today come first, those that
// have ended last.
func (c *call) overridesOf(rule string, v *telemetry.View) (rows []overrideRow, more bool, err error) {
	q := url.Values{}
	if rule != "" {
		q.Set("rule", rule)
	}
	all, more, err := c.list("/v1/overrides", q)
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	for i := range all {
		o, err := decoded[policy.Override](all[i].Document)
		if err != nil {
			return nil, false, err
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
	slices.SortStableFunc(rows, func(a, b overrideRow) int {
		if n := cmp.Compare(btoi(a.Ended), btoi(b.Ended)); n != 0 {
			return n
		}
		if n := cmp.Compare(btoi(a.Until.IsZero()), btoi(b.Until.IsZero())); n != 0 {
			return n
		}
		if a.Ended {
			return b.Until.Compare(a.Until)
		}
		return a.Until.Compare(b.Until)
	})
	return rows, more, nil
}
