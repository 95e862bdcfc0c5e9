package console

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// known caches the values that the first page shows, except counts.
type known struct {
	// These two caches have one value for callers that may see whole keys, and one for others.
	audits    cache[bool, []source.Entry]
	overrides cache[bool, []overrideRow]

	subjects cache[string, *looked] // by ID
}

// rulesInForce returns the rules in force by name. If the whole policy is in shadow mode, all rules have Shadow
// set.
func (c *call) rulesInForce() map[string]*policy.Rule {
	all := c.shadow() != nil
	byName := make(map[string]*policy.Rule, len(c.policy.Document.Rules))
	for i := range c.policy.Document.Rules {
		r := &c.policy.Document.Rules[i]
		if all && !r.Exempt {
			shadow := *r
			shadow.Shadow = true
			r = &shadow
		}
		byName[r.Name] = r
	}
	return byName
}

// lastAudits returns the latest entries of the audit log. Without a database, it returns none.
func (s *server) lastAudits(c *call) []source.Entry {
	all, _ := s.known.audits.get(c.caller.Role.May(source.Operator), 3*time.Second, func() ([]source.Entry, error) {
		ctx, cancel := context.WithTimeout(c.Context(), callTime) // the context of a stream has no deadline
		defer cancel()
		page, err := s.Control.Audit(ctx, c.caller, "", maxChanges)
		if err != nil {
			return nil, err
		}
		return page.Items, nil
	})
	return all
}

// maxEnding is the maximum length of the list of overrides that end soon.
const maxEnding = 5

// endingOverrides returns the overrides that end within a day, the earliest end first.
func (s *server) endingOverrides(c *call, v *telemetry.View) []overrideRow {
	all, _ := s.known.overrides.get(c.caller.Role.May(source.Operator), 20*time.Second, func() ([]overrideRow, error) {
		_, rows, err := c.overrides(control.Query{State: "today", Limit: maxEnding}, v)
		return rows, err
	})
	return all
}

// looked is the present state of a subject.
type looked struct {
	*control.SubjectState
	Fullest limit // the limit with the largest used fraction
	FullAt  time.Time
}

// look returns the present state of a subject that was denied.
func (s *server) look(c *call, id string) *looked {
	l, _ := s.known.subjects.get(id, 3*time.Second, func() (*looked, error) {
		ctx, cancel := context.WithTimeout(c.Context(), 300*time.Millisecond)
		defer cancel()
		states, err := s.Control.SubjectByID(ctx, c.caller, id)
		if states == nil {
			return nil, err
		}
		l := &looked{SubjectState: &states.Rules[0]}
		for _, one := range l.Limits {
			if one.FullAt != nil && one.FullAt.After(l.FullAt) {
				l.FullAt = *one.FullAt
			}
		}
		l.Fullest = fullest(l.Limits)
		return l, err
	})
	return l
}

// limitOf returns the strictest limit of a rule. It ignores limits of distinct values or of money.
func limitOf(r *policy.Rule) (strictest sluice.Limit, found bool) {
	if r.Distinct.Limit != "" {
		return strictest, false
	}
	for _, text := range r.LimitTexts() {
		if l, err := sluice.ParseLimit(text); err == nil && l.Money == 0 && (!found || ratePer(l) < ratePer(strictest)) {
			strictest, found = l, true
		}
	}
	return strictest, found
}

func ratePer(l sluice.Limit) float64 { return float64(l.Count) / period(l).Seconds() }

func period(l sluice.Limit) time.Duration {
	if l.Period <= 0 {
		return 31 * 24 * time.Hour
	}
	return l.Period
}

// timesLimit returns the number of requests that a subject made in a time, divided by the number that the limit
// allows in that time.
func timesLimit(l sluice.Limit, asked uint64, in time.Duration) float64 {
	if l.Count < 1 {
		return 0
	}
	return float64(asked) / (ratePer(l) * max(in, period(l)).Seconds())
}

// active returns the time for which a subject was active in a window. The result is at least one step.
func active(t *telemetry.Subject, w telemetry.Window) time.Duration {
	return min(windowLength[w], max(telemetry.Step, t.Last.Sub(t.First)))
}
