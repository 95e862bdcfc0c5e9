package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
)

// act is something that is done by a button. Its page at GET has a form and the effect that it would
// have, and its POST does it.
type act struct {
	name string
	role source.Role
	// look returns the effect, by a dry run. Its problem is shown beside the form; other errors are about what the
	// request names.
	look func(c *call, f url.Values) (*effect, error)
}

var acts = []act{
	{"block", source.Operator, lookBlock},
	{"unblock", source.Operator, lookUnblock},
	{"raise", source.Operator, lookRaise},
	{"reset", source.Operator, lookReset},
	{"refund", source.Operator, lookRefund},
	{"end-override", source.Operator, lookEndOverride},
	{"silence", source.Operator, lookSilence},
	{"unsilence", source.Operator, lookUnsilence},
	{"shadow", source.Admin, lookShadow},
	{"enforce", source.Admin, lookEnforce},
	{"shadow-all", source.Admin, lookShadowAll},
	{"enforce-all", source.Admin, lookEnforceAll},
	{"previous", source.Admin, lookPrevious},
}

func actRoutes() (all []route) {
	for _, a := range acts {
		all = append(all,
			route{"GET /act/" + a.name, a.role, a.page},
			route{"POST /act/" + a.name, a.role, a.do})
	}
	return all
}

// effect is what would come of an act.
type effect struct {
	Act    string
	Title  string // the act and its subject
	Whom   string // a key from outside, shown behind the title
	Verb   string // on the button
	Danger bool

	// Fields are what the form asks for.
	Fields []field
	Hidden map[string]string

	Rows     []effectRow
	Notes    []string
	Warnings []string
	Problem  *control.Problem // why it cannot be done so
	NoUndo   string           // why it cannot be undone, if it cannot

	// How describes another way if this page cannot act. Paste is then the text for the file, and Diff the change
	// of it.
	How   string
	Paste string
	Diff  []diffLine
	Back  string // the page that it began on
	// LastHour is the effect on the latest requests.
	LastHour *lastHour

	do   func() (undo, error) // nil: there is nothing to do
	said string               // once it is done
}

// Here reports whether this page may act, once the form is valid.
func (e *effect) Here() bool { return e.How == "" && (e.do != nil || len(e.Fields) > 0) }

// Possible reports whether there is something to do.
func (e *effect) Possible() bool { return e.do != nil && e.Problem == nil }

// effectRow is something before and after.
type effectRow struct{ What, Before, After string }

// Same reports whether it stays as it is.
func (r effectRow) Same() bool { return r.Before == r.After }

// field is one of a form.
type field struct {
	Name, Label, Kind string // Kind is "text", "date", "number" or "select"
	Value, Hint       string
	Required          bool
	Options           []option
}

type option struct {
	Value, Text string
	Chosen      bool
}

// page shows the form of an act with the effect that it would have.
func (a act) page(s *server, c *call) error {
	e, err := a.look(c, c.URL.Query())
	if err != nil {
		return err
	}
	return a.show(s, c, http.StatusOK, e)
}

func (a act) show(s *server, c *call, status int, e *effect) error {
	e.Act = a.name
	return s.show(c, status, "act", page{Title: e.Title, Section: sectionOf(e.Back), Script: "acts.js", Data: e})
}

// do does it, with what was shown as its effect.
func (a act) do(s *server, c *call) error {
	e, err := a.look(c, c.PostForm)
	if err != nil {
		return err
	}
	e.Act = a.name
	if c.PostForm.Has("preview") {
		return a.show(s, c, http.StatusOK, e)
	}
	if missing := e.missing(c.PostForm); e.Problem == nil && missing != "" {
		e.Problem = control.Problemf(http.StatusUnprocessableEntity, "%s is missing.", missing)
	}
	if e.Problem == nil && e.do == nil {
		e.Problem = control.Problemf(http.StatusConflict, "This is not possible here, and nothing was changed.")
	}
	if e.Problem != nil {
		return a.show(s, c, e.Problem.Status, e)
	}
	undo, err := e.do()
	if err != nil {
		if e.Problem, err = c.refusal(err); err != nil {
			return err
		}
		return a.show(s, c, e.Problem.Status, e)
	}
	return c.done(e.Back, e.said, undo)
}

// missing returns the label of a field that has to be there and is not.
func (e *effect) missing(f url.Values) string {
	for _, field := range e.Fields {
		if field.Required && strings.TrimSpace(f.Get(field.Name)) == "" {
			return field.Label
		}
	}
	return ""
}

// offer has the effect offer a change, once that has been tried: it is dry then. It returns what would come of
// it, or nil if it would be refused, for a reason that is the effect's Problem. Once the change is made, undone
// returns what takes it back, of what came of it, or nil; it is nil itself if nothing ever does.
func offer[T any](c *call, e *effect, change func(dry bool) (*T, error), undone func(*T) undo) (*T, error) {
	e.do = func() (undo, error) {
		did, err := change(false)
		if err != nil || undone == nil {
			return nil, err
		}
		return undone(did), nil
	}
	would, err := change(true)
	if err != nil {
		e.Problem, err = c.refusal(err)
		return nil, err
	}
	return would, nil
}

// sectionOf returns the section of the navigation that a page is in.
func sectionOf(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	name, _, _ = strings.Cut(name, "?")
	return name
}

// How long things last that end.
var lasts = []struct {
	value, text string
	length      time.Duration
}{
	{"1h", "1 hour", time.Hour},
	{"24h", "24 hours", 24 * time.Hour},
	{"7d", "7 days", 7 * 24 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour},
}

// untilFields ask until when something is to hold. Without JavaScript both are there; a date wins.
func untilFields(f url.Values, usual string) []field {
	how := field{Name: "for", Label: "For", Kind: "select"}
	for _, l := range lasts {
		how.Options = append(how.Options, option{l.value, l.text, l.value == cmp.Or(f.Get("for"), usual)})
	}
	return []field{how, {Name: "until", Label: "Or until the end of", Kind: "date", Value: f.Get("until"), Hint: "A day in UTC. It overrides the choice above."}}
}

// untilOf returns until when something is to hold, as control reads it.
func untilOf(f url.Values, usual string) string {
	chosen := cmp.Or(f.Get("for"), usual)
	for _, l := range lasts {
		if l.value == chosen {
			chosen = time.Now().Add(l.length).UTC().Truncate(time.Second).Format(time.RFC3339)
		}
	}
	return cmp.Or(f.Get("until"), chosen) // control reports what it cannot read
}

// reasonField asks why.
func reasonField(f url.Values, required bool) field {
	return field{Name: "reason", Label: "Reason", Kind: "text", Value: f.Get("reason"), Required: required, Hint: "For other operators. It is recorded in the audit log."}
}

// stateRows are what differs between two states of a subject.
func stateRows(before, after *control.SubjectState) []effectRow {
	rows := []effectRow{{"Requests", requestsWords(before), requestsWords(after)}}
	if w, is := limitsHeld(before), limitsHeld(after); w != is {
		rows = append(rows, effectRow{"Limit", w, is})
	}
	for i := range before.Limits {
		if i < len(after.Limits) && before.Limits[i].Name == after.Limits[i].Name {
			what := "Left"
			if len(before.Limits) > 1 {
				what += " of " + limit{before.Limits[i]}.Words()
			}
			rows = append(rows, effectRow{what, leftWords(&before.Limits[i]), leftWords(&after.Limits[i])})
		}
	}
	return rows
}

func requestsWords(s *control.SubjectState) string {
	switch {
	case s.Blocked && s.BlockedUntil == nil:
		return "all denied by this rule, for good"
	case s.Blocked:
		return "all denied by this rule until " + timeWords(*s.BlockedUntil)
	case s.Override != nil && s.Override.Document.Exempt:
		return "not counted by this rule"
	}
	return "counted by its limit"
}

func limitsHeld(s *control.SubjectState) string {
	var all []string
	for _, l := range s.Limits {
		all = append(all, limit{l}.Words())
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, " and ")
}

func leftWords(l *control.LimitState) string {
	one := limit{*l}
	return one.Amount(l.Remaining) + " of " + one.Amount(l.Capacity)
}

// ends is a sentence about when something ends by itself.
func ends(until string) string {
	t, err := policy.ParseUntil(until)
	if err != nil {
		return ""
	}
	return "It ends by itself on " + timeWords(t) + ", in " + words.Span(time.Until(t).Round(time.Minute)) + "."
}
