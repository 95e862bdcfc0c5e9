package console

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// known is what the first page knows beside what was counted. It is the same for all who may look.
type known struct {
	policies kept[*policy.Policy, *knownPolicy]
	// By whether the caller sees whole keys.
	audits    kept[bool, []auditEntry]
	overrides kept[bool, []endingOverride]
	subjects  kept[string, *looked]
}

func newKnown() *known {
	k := &known{}
	k.policies.most, k.audits.most, k.overrides.most, k.subjects.most = 2, 2, 2, 1000
	return k
}

// knownPolicy is the policy in force by the names of its rules, which are shadows where the whole policy is one.
type knownPolicy struct {
	*inForce
	byName map[string]*policy.Rule
}

func (s *server) knownPolicy(c *call) (*knownPolicy, error) {
	now := s.Engine.Policy()
	return s.known.policies.get(now, 10*time.Second, func() (*knownPolicy, error) {
		in, err := c.policyInForce()
		if err != nil {
			return nil, err
		}
		rules, err := in.rules()
		k := &knownPolicy{in, make(map[string]*policy.Rule, len(rules))}
		for i := range rules {
			rule := rules[i].Rule
			rule.Shadow = rule.Shadow || now.WatchOnly() && !rule.Exempt
			k.byName[rule.Name] = &rule
		}
		return k, err
	})
}

// lastAudits returns the latest changes. Without a database there are none.
func (s *server) lastAudits(c *call) []auditEntry {
	all, _ := s.known.audits.get(c.caller.Role.May(source.Operator), 3*time.Second, func() ([]auditEntry, error) {
		var page struct {
			Items []auditEntry `json:"items"`
		}
		err := c.do("GET", "/v1/audit?limit=5", nil, &page)
		return page.Items, err
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
		var page itemPage
		err = c.do("GET", "/v1/overrides?state=today&sort=until&limit="+strconv.Itoa(maxEnding), nil, &page)
		for _, it := range page.Items {
			var o policy.Override
			if it.Disabled || json.Unmarshal(it.Document, &o) != nil {
				continue
			}
			if ends, err := policy.ParseUntil(o.Until); err == nil {
				all = append(all, endingOverride{
					Rule: o.Rule, Shown: it.shownKey(s, o.Rule, o.Key), Words: overrideWords(&o), Ends: ends, key: o.Key,
				})
			}
		}
		return all, err
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
