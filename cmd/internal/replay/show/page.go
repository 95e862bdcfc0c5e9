package show

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

const (
	pageRules    = 200
	pageSubjects = 50
)

var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"count": humanize.Comma, "share": share, "span": words.Span, "down": down, "when": when, "limit": limit, "notJudged": notJudged, "longest": longest, "counted": words.Counted[int64],
		"safe":  func(s string) string { return safe(s, 200) },
		"path":  func(s string) string { return safe(s, 120) },
		"long":  func(s string) string { return safe(s, 2000) },
		"utc":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"width": func(n, most int64) int64 { return 100 * n / max(1, most) },
		"clients": func(name string, all []replay.ClientChange) clients {
			return clients{name, all[:min(len(all), pageSubjects)]}
		},
		"style": func() template.CSS { return template.CSS(pageStyle) },
	}).Parse(pageText))
})

// page is the data of the template.
type page struct {
	*replay.Report
	Headline              string
	Noun, NounCapital     string // see [noun]
	Series                replay.Series
	Formats               string
	Requested             *drawn // the requests over time
	ByRule                *drawn
	Rows                  []ruleRow
	Hit                   []ruleRow // the rules of Rows that deny requests
	More                  int       // the number of rules that are not in Rows
	Tops                  []replay.Subject
	Findings, Broken      []string
	FirstUnread           bool // the page shows only the first of the unreadable lines
	Hardness              [6]string
	AboutRules, AboutDown string
	Verdict               string // the verdict of the comparison
	Changes               []change
}

// ruleRow is a rule that was judged.
type ruleRow struct {
	Name string
	replay.Rule
	Hard []hard
}

// hard is the number of subjects in a class of [replay.Rule.Hardness], and its share of all denied subjects.
type hard struct {
	Name    string
	N       int64
	Percent int64
}

// clients has the clients that a change of policies helps or harms.
type clients struct {
	Name    string
	Clients []replay.ClientChange
}

// HTML writes a report as one page. The page loads nothing else: no script, no font, no picture.
func HTML(w io.Writer, r *replay.Report) error {
	one := noun(r)
	p := &page{
		Report: r, Headline: headline(r), Noun: one, NounCapital: strings.ToUpper(one[:1]) + one[1:], AboutRules: aboutRules(r), AboutDown: aboutDown,
		Formats: formats(r.Log.Files), Series: legible(r.Series, chartSteps), Findings: findings(r), Broken: broken(r), FirstUnread: int64(len(r.Log.Unread)) < r.Unreadable,
		Hardness: hardness, Tops: r.Top[:min(len(r.Top), pageSubjects)],
	}
	p.Requested = requestsChart(p.Series)
	p.ByRule = rulesChart(r, p.Series, byRefusals(r))
	for _, name := range byRefusals(r) {
		if len(p.Rows) == pageRules {
			p.More = len(r.Rules) - pageRules
			break
		}
		row := ruleRow{Name: name, Rule: r.Rules[name]}
		for i, n := range row.Hardness {
			row.Hard = append(row.Hard, hard{hardness[i], n, 100 * n / max(1, row.SubjectsRefused)})
		}
		p.Rows = append(p.Rows, row)
		if row.SubjectsRefused > 0 {
			p.Hit = append(p.Hit, row)
		}
	}
	if d := r.Against; d != nil {
		all := changes(d)
		p.Verdict, p.Changes = verdict(r, d), all[:min(len(all), pageRules)]
	}
	var b strings.Builder // a failing template must not leave half a page in w
	if err := pageTemplate().Execute(&b, p); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// byRefusals returns the rules that were judged. Rules with the most denials come first. Rules with the same number
// of denials are in the order of the policy.
func byRefusals(r *replay.Report) []string {
	names := slices.DeleteFunc(slices.Clone(r.Order), func(name string) bool { _, ok := r.Rules[name]; return !ok })
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(r.Rules[b].Refused, r.Rules[a].Refused) })
	return names
}
