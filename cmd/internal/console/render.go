package console

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	text "github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// page is a page to show: the data that a route's function gives to a template.
type page struct {
	Title   string
	Section string // the section of the navigation: "", "rules", "overrides", …
	// Script is a file in assets that only this page loads, or "".
	Script string
	Data   any
}

// shown is the data of a template.
type shown struct {
	page
	Caller          control.Caller
	Operator, Admin bool // whether the caller has at least this role
	SignedIn        bool // the caller has a session, and can sign out
	Notice          *notice
	Version         string
	Sections        []section
	Watching        *control.ShadowState // nil: the policy is enforced
}

type section struct{ Name, Path, Title string }

var sections = []section{
	{"now", "/", "Now"},
	{"rules", "/rules", "Rules"},
	{"subjects", "/subjects", "Subjects"},
	{budgetsSection, "/budgets", "Budgets"},
	{"explain", "/explain", "Explain"},
	{"overrides", "/overrides", "Overrides"},
	{"shadow", "/shadow", "Shadow"},
	{"policy", "/policy", "Policy"},
	{"audit", "/audit", "Audit log"},
}

// budgetsSection is the section of budgets. The navigation omits it if the policy has no budgets.
const budgetsSection = "budgets"

//go:embed templates/*.html
var templateFiles embed.FS

// templates returns the templates of pages by name, each with the layout and all parts. It parses them at the first
// call, because most commands do not need them.
var templates = sync.OnceValue(func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/_*.html"))
	names, err := fs.Glob(templateFiles, "templates/*.html")
	if err != nil {
		panic(err) // cannot happen: the pattern is valid
	}
	all := map[string]*template.Template{}
	for _, name := range names {
		if base := path.Base(name); !strings.HasPrefix(base, "_") {
			all[strings.TrimSuffix(base, ".html")] = template.Must(template.Must(shared.Clone()).ParseFS(templateFiles, name))
		}
	}
	return all
})

var functions = template.FuncMap{
	"asset":     assetURL,
	"key":       shownKey,
	"printable": printable,
	"sentences": func(s string) string { return printableTo(s, maxSentences) },
	"num":       func(n any) string { return number(whole(n)) },
	"rate":      rate,
	"percent":   percent,
	"plural":    func(n any, one, many string) string { return plural(whole(n), one, many) },
	"width":     func(share float64) string { return strconv.FormatFloat(100*min(max(share, 0), 1), 'f', 2, 64) + "%" },
	"from100":   func(share float64) string { return coordinate(100 * (1 - share)) },
	"of100":     func(share float64) string { return coordinate(100 * share) },
	"ratio":     func(part, of uint64) float64 { return min(1, shareOf(part, of)) },
	"ago":       ago,
	"last":      last,
	"utc":       func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"clock":     func(t time.Time) string { return t.UTC().Format("15:04") },
	"rfc":       func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"dict":      dict,
	"timeWords": timeWords,
	"unbroken":  unbroken,
	"limit":     func(l control.LimitState) limit { return limit{l} },
	"explained": explainedLimit,
	"held":      func(o *policy.Override) string { return overrideWords(o) + ", " + untilWords(o.Until) },
	"pointer":   func(w control.Wrong) string { return *cmp.Or(w.Pointer, new(string)) },
}

// shownOf returns the data for the template of a page.
func (s *server) shownOf(c *call, p page) *shown {
	d := &shown{page: p, Caller: c.caller, SignedIn: c.session != nil, Version: s.Version}
	d.Operator, d.Admin = c.caller.Role.May(source.Operator), c.caller.Role.May(source.Admin)
	if c.caller.Role.May(source.Viewer) {
		d.Sections, d.Watching = sections, c.shadow()
		if !c.hasBudgets() {
			d.Sections = slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return s.Name == budgetsSection })
		}
		if id := c.URL.Query().Get("done"); id != "" {
			d.Notice = s.notices.get(id, c.caller.Name)
		}
	}
	return d
}

// show writes a page.
func (s *server) show(c *call, status int, name string, p page) error {
	var out bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&out, "layout", s.shownOf(c, p)); err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	c.w.WriteHeader(status)
	_, _ = out.WriteTo(c.w)
	return nil
}

// maxShown is the maximum number of bytes that are shown of a key or another text from a client.
const maxShown = 160

// shownKey returns a key as HTML that keeps the key's direction from affecting the text around it.
func shownKey(s string) template.HTML {
	full := printableTo(s, 10*maxShown)
	clipped := printableTo(s, maxShown)
	title := ""
	if clipped != full {
		title = ` title="` + template.HTMLEscapeString(full) + `"`
	}
	return template.HTML(`<bdi class="key"` + title + `>` + template.HTMLEscapeString(clipped) + `</bdi>`)
}

// printable replaces invisible characters, such as marks that change the direction of text, and cuts text that is
// too long.
func printable(s string) string { return printableTo(s, maxShown) }

// maxSentences is the maximum number of bytes that are shown of a warning or a note. The console's own texts are
// shorter.
const maxSentences = 600

func printableTo(s string, most int) string { return cmp.Or(text.Text(s, most), "(none)") }

// space is a space that keeps a number and its unit on one line.
const space = "\u00a0"

// number formats a count for display: 840, 9,420, 38.2 k, 1.2 M.
func number[T uint64 | int64 | int](n T) string {
	f := float64(n)
	if math.Abs(f) < 10_000 {
		return humanize.Comma(int64(n))
	}
	third := math.Pow(10, math.Floor(math.Log10(math.Abs(f)))-2) // the value of the third digit
	value, prefix := humanize.ComputeSI(math.Round(f/third) * third)
	return humanize.Ftoa(value) + space + prefix
}

// whole converts an integer of any of the types that templates use.
func whole(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case uint64:
		return int64(min(n, math.MaxInt64))
	}
	return 0
}

func trimmed(f float64, digit bool) string {
	if !digit {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// unbroken keeps each percent sign on the line of its number.
func unbroken(text string) string { return strings.ReplaceAll(text, " %", space+"%") }

// rate formats a number per second.
func rate(perSecond float64) string {
	switch a := math.Abs(perSecond); {
	case math.IsNaN(perSecond) || math.IsInf(perSecond, 0):
		return "–"
	case a == 0:
		return "0"
	case a < 0.01:
		return "<0.01"
	case a < 1:
		return strings.TrimRight(strconv.FormatFloat(perSecond, 'f', 2, 64), "0")
	case a < 100:
		return trimmed(perSecond, true)
	default:
		return number(int64(math.Round(perSecond)))
	}
}

// percent formats a fraction as a percentage.
func percent(share float64) string {
	const sign = space + "%"
	switch p := share * 100; {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return "–"
	case p == 0:
		return "0" + sign
	case p < 0.1:
		return "<0.1" + sign
	case p < 10:
		return trimmed(p, true) + sign
	case p > 99.9 && p < 100:
		return ">99.9" + sign
	default:
		return strconv.FormatFloat(p, 'f', 0, 64) + sign
	}
}

func plural[T uint64 | int64 | int](n T, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + many
}

// last formats a duration.
func last(d time.Duration) string {
	switch d = d.Abs(); {
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + space + "µs"
	case d < 10*time.Millisecond:
		return trimmed(float64(d.Microseconds())/1000, true) + space + "ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + space + "ms"
	}
	return strings.ReplaceAll(words.Span(d), " ", space)
}

// ago describes how long ago a time was, or how soon it will be.
func ago(t time.Time) string {
	switch d := time.Since(t); {
	case t.IsZero():
		return "never"
	case d < -time.Second:
		return "in " + last(d)
	case d < 2*time.Second:
		return "just now"
	default:
		return last(d) + " ago"
	}
}

// dict returns a map of alternating keys and values. Templates use it to pass several arguments to another template.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d values, want pairs", len(pairs))
	}
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: the key %v is not a string", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
