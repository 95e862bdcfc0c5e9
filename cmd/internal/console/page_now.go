package console

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

const (
	maxRows    = 12 // rows of the table of rules
	maxWho     = 10
	maxLooked  = 20 // lookups of the limits of denied subjects
	maxChanges = 5
)

// firstShown is the data of the first page. The page answers an operator's questions in an incident, the most
// urgent first.
type firstShown struct {
	Ask asked
	At  time.Time
	New bool // no request has arrived yet
	Try string

	Headline telemetry.Headline
	Text     string // the text of the headline
	// If Text contains a time, Timed is true, and Before and After are the parts of Text around the time.
	Before, After string
	Timed         bool
	Alerts        []control.Alert // the alerts other than the headline
	Quiet         []control.Alert // the silenced alerts
	Tiles         []tile
	Chart         *chart
	Flat          string // the text of the chart if nothing was denied
	Unused        bool   // the chosen rule has not applied to any request
	Back          string // the time for which counts are available, in words
	UnusedIs      *policy.Rule
	UnusedCheck   string // a command that explains why the rule did not apply

	Rules     []ruleRow
	RuleCount int
	Narrow    bool // no rule matches the filter
	Upstreams []upstreamRow
	// UpstreamCount is the number of upstreams of the gateways. It is 0 if no instance is a gateway.
	UpstreamCount int
	Loads         []loadRow // the rules with automatic limits
	Verdict       *verdict
	Who           []whoRow
	Worst         *whoRow // the subject with the most denials by the verdict's rule, among those that are not blocked
	WhoError      uint64
	Harmed        []harmedRow
	Health        health
	Changes       []change
	Ending        []whoRow
	Overrides     []overrideRow
	Shadow        shadowLine
}

func (s *server) first(c *call) error {
	return s.show(c, http.StatusOK, "first", page{Title: "Now", Section: "now", Data: s.firstShown(c, c.URL.Query())})
}

// firstShown makes the data of the page and of its updates.
func (s *server) firstShown(c *call, q map[string][]string) *firstShown {
	v := c.view()
	s.history.note(v)
	a, err := c.alerts()
	if err != nil { // the page then shows no silences
		s.Logger.Warn("console: cannot read the silenced alerts", "error", err)
	}
	f := &firstShown{Ask: askedOf(q, v.At), At: v.At, Try: s.Try, Headline: v.HeadlineExcept(a.silenced)}
	f.Alerts, f.Quiet = a.others(f.Headline.Alert), a.quiet()
	if worst := f.Headline.Subject; worst != nil { // for the button, which shows the key as other pages do
		named := *worst
		named.Shown = c.shownSubject(worst)
		f.Headline.Subject = &named
	}
	f.Text = unbroken(printableTo(f.Headline.Text, 600))
	for _, layout := range []string{"2 Jan 15:04 UTC", "15:04 UTC"} {
		if !f.Timed && !f.Headline.Since.IsZero() {
			f.Before, f.After, f.Timed = strings.Cut(f.Text, f.Headline.Since.UTC().Format(layout))
		}
	}
	rules := c.rulesInForce()
	chosen := v.Rule(f.Ask.Rule)
	if chosen == nil {
		f.Ask.Rule = ""
	}
	f.New = len(v.All.Days) == 0 || total(v.All.Days) == 0 && total(v.All.Recent) == 0
	f.Tiles = s.tiles(v)
	f.draw(v, chosen)
	if chosen != nil && total(chosen.Days) == 0 && total(chosen.Recent) == 0 {
		f.Back = lookedBack(v)
		f.Unused, f.UnusedIs = true, rules[chosen.Name]
		f.UnusedCheck = checkCommand(cmp.Or(f.UnusedIs, &policy.Rule{}))
	}
	f.table(v, rules)
	f.Upstreams, f.UpstreamCount = upstreamRows(v)
	f.Loads = loadRows(v, rules)
	f.judge(c, v, chosen, rules)
	s.refusedMost(c, f, v, chosen, rules)
	if f.Verdict != nil {
		free := func(r whoRow) bool { return r.Rule == f.Verdict.Rule && (r.Now == nil || !r.Now.Blocked) }
		if i := slices.IndexFunc(f.Who, free); i >= 0 {
			f.Worst = &f.Who[i]
		}
	}
	f.Health = healthOf(v)
	f.Changes = changesOf(v, s.lastAudits(c), f.Headline.Since)
	f.Overrides = s.endingOverrides(c, v)
	f.Shadow = shadowOf(v, rules)
	return f
}

// tile is a number, with its values over the last hour and yesterday.
type tile struct {
	ID, Name    string
	Value, Unit string
	Note        string
	Before      string // yesterday
	Spark       spark
	Label       string // the spark in words
	Kind        string // the color
}

func (s *server) tiles(v *telemetry.View) []tile {
	counts, lasted := lately(v, &v.All)
	refused := tile{
		ID: "tile-refused", Name: "Denied", Kind: "deny",
		Value: rate(perSecond(counts[telemetry.Deny], lasted)), Unit: "/s",
		Note:  percent(shareOf(counts[telemetry.Deny], counts.Total())) + " of " + rate(perSecond(counts.Total(), lasted)) + "/s",
		Spark: sparkOf(minutes(v, &v.All, refusedOf)), Label: "Denied each minute of the last hour",
		Before: "not known yet",
	}
	if blocked := min(v.BlockedRate(nil), perSecond(counts[telemetry.Deny], lasted)); blocked > 0 {
		refused.Note += "; " + rate(blocked) + "/s by blocks"
	}
	if c, lasted, known := yesterday(v, &v.All, v.At); known {
		refused.Before = rate(perSecond(c[telemetry.Deny], lasted)) + "/s, " + percent(shareOf(c[telemetry.Deny], c.Total()))
	}
	who := tile{
		ID: "tile-subjects", Name: "Subjects denied", Kind: "deny", Value: number(refusedIn(v, telemetry.Minute, telemetry.Deny)), Unit: "in a minute",
		Note:  number(refusedIn(v, telemetry.Hour, telemetry.Deny)) + " in the last hour, " + number(refusedIn(v, telemetry.Day, telemetry.Deny)) + " in a day",
		Spark: sparkOf(s.history.lastHour(v.At, func(s *sample) float64 { return float64(s.who) })), Label: "Subjects denied each minute of the last hour",
		Before: "not known yet",
	}
	slow := tile{
		ID: "tile-time", Name: "Time of a decision", Kind: "accent", Value: "–", Unit: "p99",
		Note:  "no decision in the last minute",
		Spark: sparkOf(s.history.lastHour(v.At, func(s *sample) float64 { return s.slow.Seconds() })), Label: "p99 of each minute of the last hour",
		Before: "not known yet",
	}
	if p99 := slowest(v); p99 > 0 {
		slow.Value, slow.Note = last(p99), "or less for 99 % of decisions, on the slowest instance"
	}
	if before, known := s.history.yesterday(v.At); known {
		who.Before, slow.Before = number(before.who)+" in a minute", last(before.slow)
		if before.slow == 0 {
			slow.Before = "no decision"
		}
	}
	return []tile{refused, who, slow}
}

func shareOf(part, of uint64) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

// refusedIn returns the number of subjects that had an outcome, such as a denial, in a window. A subject of several
// rules counts once for each rule.
func refusedIn(v *telemetry.View, w telemetry.Window, o telemetry.Outcome) (n uint64) {
	for i := range v.Rules {
		r := &v.Rules[i]
		if c := countsIn(v, &r.Series, w); c[o] > 0 {
			n += r.Refused[w]
		}
	}
	return n
}

// draw makes the chart.
func (f *firstShown) draw(v *telemetry.View, chosen *telemetry.Rule) {
	series := &v.All
	if chosen != nil {
		series = &chosen.Series
	}
	f.Chart = chartOf(v, series, f.Ask.Day)
	if f.Ask.Ranged() {
		f.Chart.Chosen = [2]int64{f.Ask.From.Unix(), f.Ask.To.Unix()}
	}
	counts := countsIn(v, series, telemetry.Hour)
	if n := counts.Total(); n > 0 && counts[telemetry.Deny] == 0 {
		f.Flat = fmt.Sprintf("0 of %s denied in the last hour", number(n))
	}
}

// ruleRow is a row of the table of rules.
type ruleRow struct {
	Name, Limit string
	State       ruleState
	Rate, Would float64 // requests per second that the rule denied or would have denied
	Blocked     float64 // the part of Rate that is due to blocks; 0 if a part of the chart is selected
	Usual       float64 // negative: unknown
	Change      float64
	Subjects    uint64
	Near        float64
	Spark       spark
	Shadow      bool // the spark shows requests that would have been denied
	Chosen      bool
	Link        string
	any         bool
}

// Arrow returns the name of an arrow that compares the rate with the usual rate.
func (r ruleRow) Arrow() string {
	switch now := r.Rate - r.Blocked; {
	case r.Usual < 0 || r.Shadow:
		return "unknown"
	case now > 1.5*r.Usual+0.1:
		return "up"
	case now < r.Usual/2-0.1:
		return "down"
	}
	return "usual"
}

// table makes the table of rules, sorted by the increase of denials over the usual rate.
func (f *firstShown) table(v *telemetry.View, rules map[string]*policy.Rule) {
	f.RuleCount = len(v.Rules)
	for i := range v.Rules {
		r := &v.Rules[i]
		counts, lasted := lately(v, &r.Series)
		if f.Ask.Ranged() {
			of := recentSteps(v, &r.Series)
			if f.Ask.Day {
				of = longSteps(v, &r.Series)
			}
			counts, lasted = of.within(f.Ask.From.Add(-of.step+1), f.Ask.To)
		}
		row := ruleRow{
			Name: r.Name, Usual: r.Usual, Subjects: r.Refused[f.Ask.Window], Chosen: r.Name == f.Ask.Rule, Link: f.Ask.WithRule(r.Name),
			Rate: perSecond(counts[telemetry.Deny], lasted), Would: perSecond(counts[telemetry.WouldDeny], lasted), any: counts.Total() > 0,
		}
		if !f.Ask.Ranged() {
			row.Blocked = min(v.BlockedRate(r), row.Rate)
		}
		row.Change = row.Rate - row.Blocked - max(0, r.Usual)
		if row.Arrow() == "usual" {
			row.Change = 0 // so small a difference may be random
		}
		f.Rules = append(f.Rules, row)
	}
	slices.SortStableFunc(f.Rules, func(a, b ruleRow) int {
		return cmp.Or(cmp.Compare(b.Change, a.Change), cmp.Compare(b.Rate, a.Rate), cmp.Compare(b.Would, a.Would))
	})
	f.Narrow = f.Ask.Ranged() && !slices.ContainsFunc(f.Rules, func(r ruleRow) bool { return r.any })
	shown := f.Rules[:min(len(f.Rules), maxRows)]
	if f.Ask.Rule != "" && !slices.ContainsFunc(shown, func(r ruleRow) bool { return r.Chosen }) {
		i := slices.IndexFunc(f.Rules, func(r ruleRow) bool { return r.Chosen })
		shown[len(shown)-1] = f.Rules[i]
	}
	f.Rules = shown
	for i := range f.Rules {
		f.Rules[i].fill(v, f.Ask.Window, rules)
	}
}

// fill adds the fields that only shown rows need.
func (row *ruleRow) fill(v *telemetry.View, w telemetry.Window, rules map[string]*policy.Rule) {
	r := v.Rule(row.Name)
	row.State = ruleState{Gone: true}
	if written := rules[row.Name]; written != nil {
		row.State, row.Limit, row.Shadow = stateOf(written), ruleWords(written), written.Shadow
	}
	row.Spark = sparkOf(minutes(v, &r.Series, func(c *telemetry.Counts) uint64 { return refusedOf(c) + wouldOf(c) }))
	asked := countsIn(v, &r.Series, w)
	row.Near = min(1, shareOf(r.Near[w], asked.Total()))
}

// judge makes the verdict about the chosen rule, about the rule of the headline, or about the first rule that
// denies requests.
func (f *firstShown) judge(c *call, v *telemetry.View, chosen *telemetry.Rule, rules map[string]*policy.Rule) {
	if chosen == nil {
		chosen = v.Rule(f.Headline.Rule)
	}
	for i := 0; chosen == nil && i < len(f.Rules); i++ {
		if r := v.Rule(f.Rules[i].Name); r.Refusals[f.Ask.Window].Total > 0 {
			chosen = r
		}
	}
	if chosen == nil {
		return
	}
	var l sluice.Limit
	shadow := false
	if written := rules[chosen.Name]; written != nil {
		l, _ = limitOf(written)
		shadow = written.Shadow
	}
	f.Verdict = judge(chosen, f.Ask.Window, l, shadow)
	f.Verdict.everybody(c, chosen, f.Ask.Window)
	for i := 0; i < len(v.Rules) && f.Verdict.Everybody == ""; i++ {
		f.Verdict.everybody(c, &v.Rules[i], f.Ask.Window)
	}
}

// shadowLine counts the rules that are not enforced for all subjects, and the subjects that they would have denied.
type shadowLine struct {
	Rules    int // the number of rules that would have denied requests
	All      int // the number of all rules in shadow mode
	Subjects uint64
	Partly   bool // one of Rules is enforced for some subjects
	Did      bool // Subjects includes subjects that one of Rules really denied
}

func shadowOf(v *telemetry.View, rules map[string]*policy.Rule) (l shadowLine) {
	for i := range v.Rules {
		r := &v.Rules[i]
		written := rules[r.Name]
		switch {
		case written != nil && written.Shadow:
			l.All++
		case written == nil || written.Enforce == "" || written.Enforce == "100%":
			continue // the rule was removed, or is enforced for all
		}
		if c := countsIn(v, &r.Series, telemetry.Day); c[telemetry.WouldDeny] > 0 {
			l.Rules++
			l.Subjects += r.Refused[telemetry.Day]
			l.Partly = l.Partly || !written.Shadow
			l.Did = l.Did || c[telemetry.Deny] > 0
		}
	}
	return l
}
