package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// act is something that is done by a button. Its page at GET has a form and the effect that it would
// have, and its POST does it.
type act struct {
	name string
	role source.Role
	// look says what would come of it, by a dry run of the admin API. Its problem is shown beside
	// the form; other errors are of what the request names.
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
	Title  string // what is done, and to whom
	Whom   string // a key from outside, shown behind the title
	Verb   string // on the button
	Danger bool

	// Fields are what the form asks for.
	Fields []field
	Hidden map[string]string

	Rows     []effectRow
	Notes    []string
	Warnings []string
	Problem  *problem // why it cannot be done so
	NoUndo   string   // why it cannot be undone, if it cannot

	// How says how it is done where this page cannot do it. Paste is what to put into the file then,
	// and Diff what to change in it.
	How   string
	Paste string
	Diff  []diffLine
	Back  string // the page that it began on

	operation operation
	done      any    // what the operation answers is read into this, unless it is nil
	said      string // once it is done
	// undo returns what undoes it. It is called when it is done.
	undo func() ([]operation, error)
}

// Here reports whether this page may do it, once what the form says is right.
func (e *effect) Here() bool { return e.How == "" && (e.operation.method != "" || len(e.Fields) > 0) }

// Possible reports whether there is something to do.
func (e *effect) Possible() bool { return e.operation.method != "" && e.Problem == nil }

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
	if c.PostForm.Has("preview") {
		return a.show(s, c, http.StatusOK, e)
	}
	if missing := e.missing(c.PostForm); e.Problem == nil && missing != "" {
		e.Problem = problemf(http.StatusUnprocessableEntity, "%s is missing.", missing)
	}
	if e.Problem == nil && e.operation.method == "" {
		e.Problem = problemf(http.StatusConflict, "This cannot be done here, and nothing was changed.")
	}
	if e.Problem != nil {
		return a.show(s, c, e.Problem.Status, e)
	}
	if err := c.perform(e.operation, e.done); err != nil {
		if e.Problem, err = asProblem(err); err != nil {
			return err
		}
		return a.show(s, c, e.Problem.Status, e)
	}
	var undo []operation
	if e.undo != nil {
		if undo, err = e.undo(); err != nil { // it is done, and that is to be said
			s.Logger.Warn("dashboard: an act cannot be undone", "act", a.name, "error", err)
		}
	}
	return c.done(e.Back, e.said, undo...)
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

// foresee has an operation tried without being done, and reads what it would do into would. If it
// would be refused, it says why as the effect's Problem.
func (e *effect) foresee(c *call, o operation, would any) (foreseen bool, err error) {
	o.path += "?dry_run=true"
	if err = c.perform(o, would); err != nil {
		e.Problem, err = asProblem(err)
		return false, err
	}
	return true, nil
}

// asProblem returns what an operation was refused for. Other errors are returned as they are.
func asProblem(err error) (*problem, error) {
	var p *problem
	if errors.As(err, &p) {
		switch p.Status {
		case http.StatusPreconditionFailed:
			p = &problem{p.Status, "Somebody else has changed it since you looked, and nothing was changed now. Look at what it says now, and try again.", nil}
		case http.StatusServiceUnavailable:
			p = &problem{p.Status, "Not now: " + p.Text + ".", nil}
		}
		return p, nil
	}
	return nil, err
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
	chosen := f.Get("for")
	if chosen == "" {
		chosen = usual
	}
	how := field{Name: "for", Label: "For", Kind: "select"}
	for _, l := range lasts {
		how.Options = append(how.Options, option{l.value, l.text, l.value == chosen})
	}
	return []field{how, {Name: "until", Label: "Or until the end of", Kind: "date", Value: f.Get("until"), Hint: "A day, in UTC. If it is set, it counts."}}
}

// untilOf returns until when something is to hold, as the admin API reads it.
func untilOf(f url.Values, usual string) string {
	if day := f.Get("until"); day != "" {
		return day
	}
	chosen := f.Get("for")
	if chosen == "" {
		chosen = usual
	}
	for _, l := range lasts {
		if l.value == chosen {
			return time.Now().Add(l.length).UTC().Truncate(time.Second).Format(time.RFC3339)
		}
	}
	return chosen // which the API says something about
}

// reasonField asks why.
func reasonField(f url.Values, required bool) field {
	return field{Name: "reason", Label: "Reason", Kind: "text", Value: f.Get("reason"), Required: required, Hint: "For those who find it later. It is kept in the audit log."}
}

// stateRows are what differs between two states of a subject.
func stateRows(before, after *subjectState) []effectRow {
	rows := []effectRow{{"Requests", requestsWords(before), requestsWords(after)}}
	if w, is := limitsHeld(before), limitsHeld(after); w != is {
		rows = append(rows, effectRow{"Limit", w, is})
	}
	for i := range before.Limits {
		if i < len(after.Limits) && before.Limits[i].Name == after.Limits[i].Name {
			what := "Left"
			if len(before.Limits) > 1 {
				what += " of " + before.Limits[i].Words()
			}
			rows = append(rows, effectRow{what, leftWords(&before.Limits[i]), leftWords(&after.Limits[i])})
		}
	}
	return rows
}

func requestsWords(s *subjectState) string {
	switch {
	case s.Blocked && s.BlockedUntil.IsZero():
		return "all refused by this rule, for good"
	case s.Blocked:
		return "all refused by this rule until " + timeWords(s.BlockedUntil)
	case s.Override != nil && s.Override.Document.Exempt:
		return "not counted by this rule"
	}
	return "counted by its limit"
}

func limitsHeld(s *subjectState) string {
	var all []string
	for _, l := range s.Limits {
		all = append(all, l.Words())
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, " and ")
}

func leftWords(l *limitState) string {
	return humanize.Comma(l.Remaining) + " of " + humanize.Comma(l.Capacity)
}

// ends is a sentence about when something ends by itself.
func ends(until string) string {
	t, err := policy.ParseUntil(until)
	if err != nil {
		return ""
	}
	return "It ends by itself on " + timeWords(t) + ", in " + lengthWords(time.Until(t).Round(time.Minute)) + "."
}
