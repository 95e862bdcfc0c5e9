package console

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// ruleLine is a rule in a list of rules.
type ruleLine struct {
	Name, Description, Words, Key, Source string
	Match                                 []string
	State                                 ruleState
	Hour, Day                             telemetry.Counts
	Spark                                 spark
	Near                                  float64 // the fraction of decisions in the last hour that left less than a fifth of a limit
	Refused                               uint64  // denied subjects in the last hour
	Unmet                                 bool    // telemetry has not counted any request of the rule
	Check                                 string  // a command that explains why the rule does not apply
}

// rulesShown is the data of the page "Rules".
type rulesShown struct {
	Rows        []ruleLine
	All         int // the number of rules without the filter
	Asked       string
	State       string
	Prev, Next  string // links to the previous and the next page, or ""
	First, Last int
	Back        string // the time for which counts are available, in words
	Database    bool
	Warnings    []string
}

// States returns the states by which the list can be filtered.
func (*rulesShown) States() []string {
	return []string{"enforced", "shadow", "partly", "exempt", "block"}
}

const rulesPerPage = 100

func (s *server) rulesPage(c *call) error {
	all := c.policy.Document.Rules
	q, view := c.URL.Query(), c.view()
	d := rulesShown{All: len(all), Asked: strings.TrimSpace(q.Get("q")), State: q.Get("state"), Back: lookedBack(view), Database: c.policy.Database, Warnings: c.policy.Warnings}
	var rules []*policy.Rule
	for i := range all {
		if d.wants(&all[i]) {
			rules = append(rules, &all[i])
		}
	}
	from, _ := strconv.Atoi(q.Get("from")) // a text that is not a number selects the first page
	from = min(max(from, 0), len(rules))
	shown := rules[from:min(len(rules), from+rulesPerPage)]
	for i := range shown {
		d.Rows = append(d.Rows, c.ruleLineOf(shown[i], view))
	}
	d.First, d.Last = from+1, from+len(shown)
	page := func(from int) string {
		q.Set("from", strconv.Itoa(from))
		q.Del("done")
		return "/rules?" + q.Encode()
	}
	if from > 0 {
		d.Prev = page(max(0, from-rulesPerPage))
	}
	if from+rulesPerPage < len(rules) {
		d.Next = page(from + rulesPerPage)
	}
	return s.show(c, http.StatusOK, "rules", pageOf("Rules", "rules", &d))
}

func pageOf(title, section string, data any) page {
	return page{Title: title, Section: section, Script: "acts.js", Data: data}
}

// wants reports whether a rule matches the filter.
func (d *rulesShown) wants(r *policy.Rule) bool {
	if d.State != "" && stateOf(r).Name() != d.State {
		return false
	}
	text := strings.Join(append(matchWords(r), r.Name, r.Description, ruleWords(r), keyWords(r), r.Limit, r.Source), "\n")
	return strings.Contains(strings.ToLower(text), strings.ToLower(d.Asked))
}

func (c *call) ruleLineOf(r *policy.Rule, view *telemetry.View) ruleLine {
	row := ruleLine{
		Name: r.Name, Description: r.Description, Words: ruleWords(r), Key: keyWords(r), Source: r.Source,
		Match: matchWords(r), State: stateOf(r), Check: checkCommand(r),
	}
	row.State.All = c.shadow() != nil
	if r.Exempt || r.Block || r.OnlyClassifies() || r.InFlight.Auto && len(r.Key) == 0 {
		row.Key = ""
	}
	seen := view.Rule(r.Name)
	if seen == nil {
		return row
	}
	row.Hour, row.Day = sumOf(seen.Recent), countsIn(view, &seen.Series, telemetry.Day)
	refused := refusedOf
	if row.State.Name() == "shadow" {
		refused = wouldOf
	}
	row.Spark = sparkOf(minutes(view, &seen.Series, refused))
	row.Refused = seen.Refused[telemetry.Hour]
	row.Near = shareOf(seen.Near[telemetry.Hour], row.Hour.Total())
	row.Unmet = total(seen.Days) == 0 && row.Hour.Total() == 0 && !r.Exempt
	return row
}

// HourDeny returns the number of requests that the rule denied in the last hour.
func (r ruleLine) HourDeny() uint64 { return r.Hour[telemetry.Deny] }

// HourWould returns the number of requests that the rule would have denied in the last hour.
func (r ruleLine) HourWould() uint64 { return r.Hour[telemetry.WouldDeny] }

// DayDeny and DayWould return the same numbers for the last 24 hours.
func (r ruleLine) DayDeny() uint64  { return r.Day[telemetry.Deny] }
func (r ruleLine) DayWould() uint64 { return r.Day[telemetry.WouldDeny] }

// checkCommand returns a command that explains which rules apply to a request that the first pattern of a rule
// matches.
func checkCommand(r *policy.Rule) string {
	method, path := "", "/"
	if len(r.Match) > 0 {
		m, p, found := strings.Cut(r.Match[0], " ")
		if !found {
			m, p = "", r.Match[0]
		}
		method, path = m, strings.TrimSpace(p)
	}
	path = strings.NewReplacer("{$}", "", "...", "", "{", "", "}", "").Replace(path)
	if strings.ContainsFunc(path+method, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`'"\$&;|<>()*?[]#~!`+"`", r)
	}) || !strings.HasPrefix(path, "/") {
		path = "/PATH"
	}
	if method != "" && method != "GET" {
		return "sluice check --policy FILE -X " + method + " " + path
	}
	return "sluice check --policy FILE " + path
}

// ruleShown is the data of the page of a rule.
type ruleShown struct {
	ruleLine
	Facts     []fact
	Chart     *chart     // nil: the rule has not applied to any request
	Subjects  bool       // false for a rule with an automatic limit, or one that only sets a class
	Load      *loadRow   // nil: the rule has no automatic limit
	Loads     *loadChart // nil: no data yet
	Young     bool       // telemetry does not cover the last day yet, so the page shows the last hour
	Verdict   *verdict
	Tops      []topShown
	Overrides []overrideRow
	More      int // the number of overrides that are not shown
	YAML      string
	Database  bool
	Usual     float64
	Since     time.Time
	Seen      bool
	// Refusing selects the words for denied requests, rather than for requests that would have been denied.
	Refusing bool
}

type fact struct{ Name, Value string }

// topShown has the subjects with the most denials and those with the most requests in a window.
type topShown struct {
	Window            string
	Refused, Asked    uint64
	Refusals, Traffic topList
}

type topList struct {
	Rows         []topRow
	Error, Total uint64
}

type topRow struct {
	telemetry.Subject
	Rule, URL string
	Share     float64
	Would     bool // the rule is in shadow mode, and would have denied the requests
}

func (s *server) rulePage(c *call) error {
	rule, err := c.rule(c.PathValue("name"))
	if err != nil {
		return err
	}
	view := c.view()
	d := ruleShown{Since: view.Since, ruleLine: c.ruleLineOf(rule, view), Facts: factsOf(rule), Database: c.policy.Database, Refusing: !rule.Shadow && c.shadow() == nil}
	if d.YAML, err = rulesYAML(*rule); err != nil {
		return err
	}
	d.Subjects = !rule.InFlight.Auto && !rule.OnlyClassifies()
	if r := view.Rule(rule.Name); r != nil {
		d.Seen = true
		d.see(c, view, r, rule)
	}
	overrides, rows, err := c.overrides(control.Query{Rule: rule.Name, Limit: overridesOfRule}, view)
	if err != nil {
		return err
	}
	d.Overrides, d.More = rows, *overrides.Total-len(rows)
	return s.show(c, http.StatusOK, "rule", pageOf(rule.Name, "rules", &d))
}

// see adds the telemetry of the rule.
func (d *ruleShown) see(c *call, v *telemetry.View, r *telemetry.Rule, rule *policy.Rule) {
	d.Young = v.At.Sub(v.Since) < 3*time.Hour
	if chart := chartOf(v, &r.Series, !d.Young); len(chart.At) > 0 {
		d.Chart = chart
	}
	if d.Load = loadRowOf(r, rule); d.Load != nil {
		d.Loads = loadChartOf(v, r.Load, !d.Young, !d.Refusing)
	}
	d.Usual = r.Usual
	if !d.Subjects {
		return
	}
	l, _ := limitOf(rule)
	d.Verdict = judge(r, telemetry.Hour, l, rule.Shadow)
	d.Verdict.everybody(c, r, telemetry.Hour)
	for w := range telemetry.Windows {
		d.Tops = append(d.Tops, topShown{
			Window: telemetry.Window(w).String(), Refused: r.Refused[w], Asked: r.Asked[w],
			Refusals: c.topOf(&r.Refusals[w]), Traffic: c.topOf(&r.Traffic[w]),
		})
	}
}

// maxTop is the maximum number of subjects in each list of a topShown.
const maxTop = 10

func (c *call) topOf(t *telemetry.Top) topList {
	out := topList{Error: t.Error, Total: t.Total}
	for _, one := range t.Items[:min(len(t.Items), maxTop)] {
		row := topRow{Subject: one, URL: subjectPage(one.ID), Share: min(1, shareOf(one.Count, t.Total))}
		row.Shown = c.shownSubject(&one)
		out.Rows = append(out.Rows, row)
	}
	return out
}

// factsOf returns the settings of a rule that the page shows in a list.
func factsOf(r *policy.Rule) (all []fact) {
	add := func(name, value string) {
		if value != "" {
			all = append(all, fact{name, value})
		}
	}
	for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
		add("Tier "+tier, limitsWords(r.Tiers[tier], r.Algorithm))
	}
	if !r.OnlyClassifies() {
		add("Class", r.Class)
	}
	add("If the store is unavailable", map[string]string{"allow": "allows requests", "deny": "denies", "local": "uses a local allowance of the limit"}[r.OnError])
	add("Without the key", map[string]string{"share": "all such requests share one count", "skip": "the rule does not apply", "refuse": "denied as malformed"}[r.Missing])
	add("Ambiguous", r.Ambiguous)
	return all
}

// shadowShown is the data of the page about rules in shadow mode.
type shadowShown struct {
	Rows  []shadowRow
	Rules int
	All   bool // the whole policy is in shadow mode
}

type shadowRow struct {
	ruleLine
	Windows []shadowWindow
	Top     topList
	Total   uint64
}

type shadowWindow struct {
	Name               string
	Requests, Subjects uint64
	Share              float64
}

func (s *server) shadowPage(c *call) error {
	rules := c.policy.Document.Rules
	view := c.view()
	d := shadowShown{Rules: len(rules), All: c.shadow() != nil}
	for i := range rules {
		r := view.Rule(rules[i].Name)
		row := shadowRow{ruleLine: c.ruleLineOf(&rules[i], view)}
		would := row.Hour[telemetry.WouldDeny] + row.Day[telemetry.WouldDeny]
		if name := row.State.Name(); name != "shadow" && name != "partly" && would == 0 {
			continue
		}
		if r != nil {
			row.see(c, view, r)
		}
		d.Rows = append(d.Rows, row)
	}
	slices.SortStableFunc(d.Rows, func(a, b shadowRow) int { return cmp.Compare(b.Total, a.Total) })
	return s.show(c, http.StatusOK, "shadow", pageOf("Shadow rules", "shadow", d))
}

func (r *shadowRow) see(c *call, v *telemetry.View, t *telemetry.Rule) {
	for w := range telemetry.Window(telemetry.Windows) {
		n := countsIn(v, &t.Series, w)
		would := n[telemetry.WouldDeny]
		r.Windows = append(r.Windows, shadowWindow{w.String(), would, t.Refused[w], shareOf(would, n.Total())})
	}
	r.Total = r.Day[telemetry.WouldDeny]
	r.Top = c.topOf(&t.Refusals[telemetry.Day])
	r.Top.Rows = r.Top.Rows[:min(len(r.Top.Rows), 5)]
}
