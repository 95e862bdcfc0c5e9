package adminapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// Top are the subjects that were refused most, or would have been, or that asked most.
type Top struct {
	By     string       `json:"by"` // "refusals" or "traffic"
	Window string       `json:"window"`
	Items  []TopSubject `json:"items"`
}

// TopSubject is one of those that a rule tells apart.
type TopSubject struct {
	Rule  string `json:"rule"`
	ID    string `json:"id"`
	Shown string `json:"shown"`
	// Key is the values of the key's parts, for operators, where the rule shows keys whole.
	Key map[string]string `json:"key,omitempty"`
	// Count is at most by Error too large.
	Count   uint64     `json:"count"`
	Error   uint64     `json:"error"`
	First   *time.Time `json:"first,omitempty"`
	Last    *time.Time `json:"last,omitempty"`
	Minutes int        `json:"minutes"` // of the last hour in which there was one
}

func topSubjectOf(rule string, s *telemetry.Subject) TopSubject {
	return TopSubject{Rule: rule, ID: s.ID, Shown: s.Shown, Count: s.Count, Error: s.Error, First: timeOf(s.First), Last: timeOf(s.Last), Minutes: s.Minutes}
}

func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// topWindows are the windows by their names.
var topWindows = map[string]telemetry.Window{"minute": telemetry.Minute, "hour": telemetry.Hour, "day": telemetry.Day}

// top lists the top subjects of one rule, or of all of them, by their counts.
func (a *API) top(c *call) (any, error) {
	q, err := c.query("rule", "by", "window", "limit")
	if err != nil {
		return nil, err
	}
	window, known := topWindows[q.or("window", "hour")]
	if !known {
		return nil, badParameter("window", "write minute, hour or day")
	}
	by := q.or("by", "refusals")
	if by != "refusals" && by != "traffic" {
		return nil, badParameter("by", "write refusals or traffic")
	}
	_, n, err := q.page()
	if err != nil {
		return nil, err
	}
	v, err := a.view()
	if err != nil {
		return nil, err
	}
	name, one := q.values["rule"]
	if one && v.Rule(name) == nil {
		return nil, noRule(name)
	}
	out := Top{By: by, Window: window.String(), Items: []TopSubject{}}
	for i := range v.Rules {
		r := &v.Rules[i]
		if one && r.Name != name {
			continue
		}
		list := r.Refusals[window].Items
		if by == "traffic" {
			list = r.Traffic[window].Items
		}
		for j := range list {
			s := topSubjectOf(r.Name, &list[j])
			s.Key = a.valuesFor(c, list[j].Sent)
			out.Items = append(out.Items, s)
		}
	}
	slices.SortStableFunc(out.Items, func(a, b TopSubject) int { return cmp.Compare(b.Count, a.Count) })
	out.Items = out.Items[:min(n, len(out.Items))]
	return out, nil
}

// valuesFor returns the values of a key that others have sent, if the caller may know them: an
// operator, if its rule shows it whole.
func (a *API) valuesFor(c *call, key string) map[string]string {
	if !c.role.May(source.Operator) {
		return nil
	}
	s, err := a.Engine.SubjectOf(key)
	if err != nil || !s.ShownWhole() {
		return nil // if its rule has changed, nobody knows
	}
	return s.Values()
}
