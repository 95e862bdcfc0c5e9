package console

import (
	"context"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// known is what the first page knows beside what was counted. It is the same for all who may look.
type known struct {
	// By whether the caller sees whole keys.
	audits    cache[bool, []source.Entry]
	overrides cache[bool, []endingOverride]
	subjects  cache[string, *looked]
}

// rulesInForce returns the rules in force by their names, as shadows where the whole policy is one.
func (c *call) rulesInForce() map[string]*policy.Rule {
	p, err := c.s.Control.InForce(c.caller)
	if err != nil {
		return nil
	}
	all := c.s.Engine.Policy().WatchOnly()
	byName := make(map[string]*policy.Rule, len(p.Document.Rules))
	for i := range p.Document.Rules {
		r := &p.Document.Rules[i]
		if all && !r.Exempt {
			shadow := *r
			shadow.Shadow = true
			r = &shadow
		}
		byName[r.Name] = r
	}
	return byName
}

// lastAudits returns the latest changes. Without a database there are none.
func (s *server) lastAudits(c *call) []source.Entry {
	all, _ := s.known.audits.get(c.caller.Role.May(source.Operator), 3*time.Second, func() ([]source.Entry, error) {
		ctx, cancel := context.WithTimeout(c.Context(), callTime) // a stream has no end
		defer cancel()
		page, err := s.Control.Audit(ctx, c.caller, "", maxChanges)
		if err != nil {
			return nil, err
		}
		return page.Items, nil
	})
	return all
}

// endingOverride is one that ends within a day.
type endingOverride struct {
	Rule, Shown, Words string
	Link               string // empty where it would say a key that the caller is not to see
	Ends               time.Time
	key                map[string]string
}

// maxEnding is how many are shown.
const maxEnding = 5

// endingOverrides returns those that end within a day, the first to end first.
func (s *server) endingOverrides(c *call, v *telemetry.View) []endingOverride {
	all, _ := s.known.overrides.get(c.caller.Role.May(source.Operator), 20*time.Second, func() (all []endingOverride, err error) {
		page, err := s.Control.List(c.caller, control.Overrides, control.Query{State: "today", Sort: "until", Limit: maxEnding})
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			it := &page.Items[i]
			o := it.Document.(*policy.Override)
			if ends, err := policy.ParseUntil(o.Until); err == nil && !it.Disabled {
				all = append(all, endingOverride{Rule: o.Rule, Shown: s.shownItem(it), Words: overrideWords(o), Ends: ends, key: o.Key})
			}
		}
		return all, nil
	})
	all = slices.Clone(all)
	for i := range all {
		all[i].Link = c.subjectURL(v, all[i].Rule, all[i].key)
	}
	return all
}

// looked is what holds for a subject now.
type looked struct {
	From    string // see policy.Result
	Limit   sluice.Limit
	Used    float64 // share of the fullest of its limits
	FullAt  time.Time
	Blocked bool
	Until   time.Time // of the block; zero for good
}

// look asks what holds for a subject that was refused.
func (s *server) look(ctx context.Context, key string) *looked {
	l, _ := s.known.subjects.get(key, 3*time.Second, func() (*looked, error) {
		subject, err := s.Engine.SubjectOf(key)
		if err != nil {
			return nil, err
		}
		l := &looked{}
		l.Until, l.Blocked = subject.Blocked()
		if o, found := subject.Override(); found && o.Block {
			l.From, l.Blocked = "override", true
			l.Until, _ = policy.ParseUntil(o.Until)
		}
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		results, err := subject.Peek(ctx)
		for i := range results {
			r := &results[i]
			if r.Plan == nil {
				continue
			}
			used := 1 - float64(r.Remaining)/float64(max(1, r.Plan.Capacity))
			if l.Limit.Count == 0 || used > l.Used {
				l.From, l.Limit, l.Used = r.From, r.Plan.Limit, used
			}
			if r.ResetAfter > 0 {
				if at := time.Now().Add(r.ResetAfter); at.After(l.FullAt) {
					l.FullAt = at
				}
			}
		}
		return l, err
	})
	return l
}

// limitOf returns the limit of a rule that lets the least pass.
func limitOf(r *policy.Rule) (strictest sluice.Limit, found bool) {
	texts := r.Limits
	if r.Limit != "" {
		texts = []string{r.Limit}
	}
	if r.Share.Of != "" {
		texts = []string{r.Share.Of}
	}
	for _, text := range texts {
		if l, err := sluice.ParseLimit(text); err == nil && (!found || ratePer(l) < ratePer(strictest)) {
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

// timesLimit returns how many times the limit a subject asked for, that asked so often in a time.
func timesLimit(l sluice.Limit, asked uint64, in time.Duration) float64 {
	if l.Count < 1 {
		return 0
	}
	return float64(asked) / (ratePer(l) * max(in, period(l)).Seconds())
}

// active returns for how long a subject was seen in a window, at least a step.
func active(t *telemetry.Subject, w telemetry.Window) time.Duration {
	return min(windowLength[w], max(telemetry.Step, t.Last.Sub(t.First)))
}

// stateOfRule is how far a rule is in force, in words, and how its badge looks.
func stateOfRule(r *policy.Rule) (words, kind string) {
	switch {
	case r == nil:
		return "not in force", "quiet"
	case r.Exempt:
		return "exempts", "quiet"
	case r.Shadow:
		return "shadow", "warn"
	case r.Block:
		return "blocks", "bad"
	}
	if r.Enforce != "" {
		return "enforced for " + printable(r.Enforce), "info"
	}
	return "enforced", "good"
}
