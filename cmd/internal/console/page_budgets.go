package console

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	text "github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// budgetsShown is the data of the page "Budgets".
type budgetsShown struct {
	Rows    []budgetRow
	Known   bool // telemetry is on
	Pace    time.Duration
	Limited bool // the limits of some spenders are unknown, because the store did not answer in time
}

// budgetRow is a rule that reads its cost from responses.
type budgetRow struct {
	ruleLine
	unit      policy.Unit
	All       bool // all requests share one count
	Hours     []budgetWindow
	Estimates string
	Unread    []unreadRow
	Spark     spark
	Label     string // the text of the spark
	Spenders  []spenderRow
	Others    uint64 // the approximate spending of the subjects that are not listed
}

// budgetWindow has the costs of responses in a window that ends now.
type budgetWindow struct {
	Name               string
	Responses          uint64
	Settled, Reserved  string
	Indebted, ByGuess  uint64 // responses
	HasGuess, HasDebts bool
}

// unreadRow is a reason why the cost of responses is unknown.
type unreadRow struct {
	Reason, What, Mend string
	Responses, Of      uint64
}

// spenderRow is a subject with high costs.
type spenderRow struct {
	telemetry.Subject
	URL, Spent, Error string
	Limits            []budgetLimit
	Unknown           bool // the store did not answer
}

// budgetLimit is a limit of a spender.
type budgetLimit struct {
	limit
	At    time.Time // when the limit will be exhausted at the present pace; zero: unknown, or not before the limit is renewed
	Least bool      // the limit may last longer than At, because earlier spending expires
}

// Spent returns the used part of the limit, without the debt.
func (l budgetLimit) Spent() string { return l.Amount(min(l.Used, l.Capacity)) }

// Debt returns the debt of the subject, or "" without a debt.
func (l budgetLimit) Debt() string {
	if l.Owed() == 0 {
		return ""
	}
	return l.Amount(l.Owed())
}

const (
	maxSpenders = 10
	// paceSteps is the number of steps from which the pace is computed. The last of them is not over yet.
	paceSteps = 4
	leastPace = 2 * time.Minute // the pace of a shorter time is not meaningful
	// lookTime bounds the time in which the store answers for all subjects of the page.
	lookTime = 2 * time.Second
)

// hasBudgets reports whether a rule reads its cost from responses.
func (c *call) hasBudgets() bool {
	if c.policy == nil { // the caller may not see the policy
		return false
	}
	for i := range c.policy.Document.Rules {
		if c.policy.Document.Rules[i].Cost.ReadsResponse() {
			return true
		}
	}
	return false
}

func (s *server) budgetsPage(c *call) error {
	view := c.view()
	d := &budgetsShown{Known: len(view.Rules) > 0, Pace: paceOf(view)}
	deadline := time.Now().Add(lookTime)
	for i := range c.policy.Document.Rules {
		r := &c.policy.Document.Rules[i]
		if !r.Cost.ReadsResponse() {
			continue
		}
		row := budgetRow{ruleLine: c.ruleLineOf(r, view), All: len(countedParts(r)) == 0}
		if seen := view.Rule(r.Name); seen != nil && seen.Budget != nil {
			row.see(seen.Budget, view)
			row.spenders(c, seen.Budget, d, deadline)
		}
		d.Rows = append(d.Rows, row)
	}
	return s.show(c, http.StatusOK, "budgets", pageOf("Budgets", "budgets", d))
}

// see adds the costs of all responses to the row.
func (r *budgetRow) see(b *telemetry.Budget, v *telemetry.View) {
	r.unit = b.Unit
	for _, w := range []struct {
		name  string
		steps int
	}{{"hour", 13}, {"day", telemetry.CostSteps}} {
		c := b.Last(w.steps)
		r.Hours = append(r.Hours, budgetWindow{
			Name: w.name, Responses: c.Responses, Settled: r.amount(c.Settled), Reserved: r.amount(c.Reserved),
			Indebted: c.Indebted, ByGuess: c.AllUnread(), HasGuess: c.AllUnread() > 0, HasDebts: c.Indebted > 0,
		})
	}
	day := b.Last(telemetry.CostSteps)
	r.Estimates = estimateWords(&day)
	for i, reason := range telemetry.UnreadReasons {
		if n := day.Unread[i]; n > 0 {
			r.Unread = append(r.Unread, unreadRow{reason, unreadWords[reason].what, unreadWords[reason].mend, n, day.Responses})
		}
	}
	if day.Settled > 0 {
		values := make([]float64, len(b.Steps))
		begin := v.At.Truncate(telemetry.LongStep)
		for i := range values {
			values[i] = float64(b.Steps[i].Settled)
			if ends := begin.Add(-time.Duration(len(values)-2-i) * telemetry.LongStep); !ends.After(v.Since) {
				values[i] = -1 // unknown
			}
		}
		r.Spark, r.Label = sparkOf(values), "Cost of the last day, in steps of five minutes: "+r.amount(day.Settled)+" in all"
	}
}

// amount formats units of the budget for display.
func (r *budgetRow) amount(n uint64) string {
	if r.unit == policy.USD {
		return text.FormatMoney(int64(min(n, 1<<62)))
	}
	return number(n) + " " + r.unit.String()
}

// estimateWords describes how much estimates differed from the costs.
func estimateWords(c *telemetry.Costs) string {
	all := c.High + c.Low + c.Close
	if all == 0 {
		return ""
	}
	clauses := []string{"Of " + plural(all, "response that reported its cost", "responses that reported their cost")}
	if c.High > 0 {
		clauses = append(clauses, plural(c.High, "was", "were")+" estimated at more than twice the cost")
	}
	if c.Low > 0 {
		clauses = append(clauses, plural(c.Low, "was", "were")+" estimated at less than the cost")
	}
	if len(clauses) == 1 {
		return clauses[0] + ", none was estimated at less than the cost or more than twice the cost."
	}
	return strings.Join(clauses, ", ") + "."
}

// unreadWords has an explanation and a remedy for each of [telemetry.UnreadReasons].
var unreadWords = map[string]struct{ what, mend string }{
	"encoded":     {"were compressed, although the request asked for no compression", "Have the upstream send these responses uncompressed."},
	"type":        {"were neither JSON nor server-sent events", "Match only requests whose responses report their usage."},
	"malformed":   {"were not valid JSON", "Check these responses of the upstream."},
	"missing":     {"did not contain the numbers", "Have the client or Sluice ask for the numbers (for OpenAI's streams, “usage: ask” does), or correct the paths of response_json."},
	"interrupted": {"broke off, or the client left before the end", "Clients that leave are not an error. Otherwise, check the timeouts of the upstream."},
	"no_body":     {"came through an integration that does not read responses", "Use the gateway or httplimit, or report the numbers with /v1/settle."},
	"other":       {"could not be read", "Check these responses of the upstream."},
}

// spenders adds the subjects with the highest costs of the last day, and their remaining limits.
func (r *budgetRow) spenders(c *call, b *telemetry.Budget, d *budgetsShown, deadline time.Time) {
	top := &b.Spenders[telemetry.Day]
	rest := top.Total
	for i := range top.Items[:min(len(top.Items), maxSpenders)] {
		s := top.Items[i]
		rest -= min(rest, s.Count)
		row := spenderRow{Subject: s, URL: subjectPage(s.ID), Spent: r.amount(s.Count)}
		if s.Error > 0 {
			row.Error = r.amount(s.Error)
		}
		row.Shown = c.shownSubject(&s)
		var state *looked
		if time.Now().Before(deadline) {
			state = c.s.look(c, s.ID)
		}
		if row.Unknown = state == nil; row.Unknown {
			d.Limited = true
		} else {
			pace := find(b.Spenders[telemetry.Hour].Items, s.Key)
			for _, l := range state.Limits {
				row.Limits = append(row.Limits, budgetLimitOf(l, pace, d.Pace))
			}
		}
		r.Spenders = append(r.Spenders, row)
	}
	r.Others = rest
}

// paceOf returns the time that the last paceSteps steps cover, or 0 if it is too short to compute a pace.
func paceOf(v *telemetry.View) time.Duration {
	from := v.At.Truncate(telemetry.SubjectStep).Add(-(paceSteps - 1) * telemetry.SubjectStep)
	if v.Since.After(from) {
		from = v.Since
	}
	if lasts := v.At.Sub(from); lasts >= leastPace {
		return lasts
	}
	return 0
}

// budgetLimitOf returns a limit of a spender. s has the spender's costs of the last hour, and may be nil. The pace is
// computed from the latest costs, which cover a period of the given length.
func budgetLimitOf(l control.LimitState, s *telemetry.Subject, length time.Duration) budgetLimit {
	out := budgetLimit{limit: limit{l}}
	parsed, err := sluice.ParseLimit(l.Limit)
	if err != nil || s == nil || length == 0 || l.Remaining <= 0 || s.Error*10 > s.Count {
		return out
	}
	spent, steps := uint64(0), 0
	for _, n := range s.Steps[telemetry.SubjectSteps-paceSteps:] {
		if spent += n; n > 0 {
			steps++
		}
	}
	if steps < 2 { // a single request does not show the pace
		return out
	}
	pace := float64(spent) / length.Seconds()
	renewed := time.Time{} // when the limit is renewed, unless it refills continuously
	switch l.Algorithm {
	case "fixed_window":
		if l.FullAt != nil {
			renewed = *l.FullAt
		}
	case "token_bucket", "leaky_bucket", "gcra":
		pace -= ratePer(parsed)
	default:
		out.Least, renewed = true, time.Now().Add(period(parsed))
	}
	if pace <= 0 {
		return out
	}
	seconds := float64(l.Remaining) / pace
	if seconds > (31 * 24 * time.Hour).Seconds() {
		return out
	}
	at := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	if renewed.IsZero() || at.Before(renewed) {
		out.At = at
	}
	return out
}
