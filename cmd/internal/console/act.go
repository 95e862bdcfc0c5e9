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

// act is an action behind a button. GET returns a page with a form and the effect that the act would have. POST
// performs the act.
type act struct {
	name string
	role source.Role
	// look finds the effect by a dry run. If the form is invalid, the effect has a Problem, which the page shows
	// beside the form. look returns an error if there can be no form, for example because the rule is unknown.
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

// effect describes what an act would do.
type effect struct {
	Act    string
	Title  string // the act and its subject
	Whom   string // the key of the subject or the text of the alert, shown after the title; untrusted text
	Verb   string // the text of the button
	Danger bool

	// Fields are the fields of the form.
	Fields []field
	Hidden map[string]string

	Rows     []effectRow
	Notes    []string
	Warnings []string
	Problem  *control.Problem // why the act is impossible with this form
	NoUndo   string           // why the act cannot be undone; "" if it can

	// How describes what to do instead if this page cannot perform the act.
	How   string
	Paste string // the text to write into the policy file, or ""
	Diff  []diffLine
	Back  string // the page with the button
	// LastHour is the effect that the act would have had on the latest requests.
	LastHour *lastHour

	do     func() (undo, error) // performs the act; nil if nothing is to be done
	notice string               // the notice after the act
}

// Here reports whether this page can perform the act once the form is valid.
func (e *effect) Here() bool { return e.How == "" && (e.do != nil || len(e.Fields) > 0) }

// Possible reports whether this page can perform the act now.
func (e *effect) Possible() bool { return e.do != nil && e.Problem == nil }

// effectRow is a value before and after an act.
type effectRow struct{ What, Before, After string }

// Same reports whether the value stays as it is.
func (r effectRow) Same() bool { return r.Before == r.After }

// field is a field of a form.
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

// page shows the form and the effect of the act.
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

// do performs the act.
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
	return c.done(e.Back, e.notice, undo)
}

// missing returns the label of a required field that the form lacks, or "".
func (e *effect) missing(f url.Values) string {
	for _, field := range e.Fields {
		if field.Required && strings.TrimSpace(f.Get(field.Name)) == "" {
			return field.Label
		}
	}
	return ""
}

// offer makes the function change the action of the effect, and returns the result of a dry run of this function. If
// package control refuses the change, offer returns nil and sets the effect's Problem to the reason. The function
// undone gets the result of the real change, and returns the undo, or nil if this change cannot be undone. If undone
// itself is nil, no change by this act can be undone.
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

// lasts has the choices of a form for the duration of a change.
var lasts = []struct {
	value, text string
	length      time.Duration
}{
	{"1h", "1 hour", time.Hour},
	{"24h", "24 hours", 24 * time.Hour},
	{"7d", "7 days", 7 * 24 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour},
}

// untilFields returns the fields of a form for the end of a change: a choice of durations, and a date. Without
// JavaScript, the form shows both. The date takes precedence.
func untilFields(f url.Values, usual string) []field {
	how := field{Name: "for", Label: "For", Kind: "select"}
	for _, l := range lasts {
		how.Options = append(how.Options, option{l.value, l.text, l.value == cmp.Or(f.Get("for"), usual)})
	}
	return []field{how, {Name: "until", Label: "Or until the end of", Kind: "date", Value: f.Get("until"), Hint: "A day in UTC. It overrides the choice above."}}
}

// untilOf returns the end of a change in a form, as text that package control parses.
func untilOf(f url.Values, usual string) string {
	chosen := cmp.Or(f.Get("for"), usual)
	for _, l := range lasts {
		if l.value == chosen {
			chosen = time.Now().Add(l.length).UTC().Truncate(time.Second).Format(time.RFC3339)
		}
	}
	return cmp.Or(f.Get("until"), chosen) // package control reports an invalid text
}

// reasonField returns the field of a form for the reason of a change.
func reasonField(f url.Values, required bool) field {
	return field{Name: "reason", Label: "Reason", Kind: "text", Value: f.Get("reason"), Required: required, Hint: "For other operators. It is recorded in the audit log."}
}

// stateRows returns the differences between two states of a subject.
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

// ends returns a sentence about when a change ends by itself, or "" if until is not a time.
func ends(until string) string {
	t, err := policy.ParseUntil(until)
	if err != nil {
		return ""
	}
	return "It ends by itself on " + timeWords(t) + ", in " + words.Span(time.Until(t).Round(time.Minute)) + "."
}
