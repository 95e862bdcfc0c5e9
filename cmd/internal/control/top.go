package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// Top has the subjects with the most requests, or with the most denials, including requests that rules in shadow
// mode would have denied.
type Top struct {
	By     string       `json:"by"` // "refusals" or "traffic"
	Window string       `json:"window"`
	Items  []TopSubject `json:"items"`
}

// TopSubject is a subject of a rule with its count.
type TopSubject struct {
	Rule  string `json:"rule"`
	ID    string `json:"id"`
	Shown string `json:"shown"`
	// Key has the values of the key parts. It is set only for operators, and only if the rule shows whole keys.
	Key map[string]string `json:"key,omitempty"`
	// Count is too large by at most Error.
	Count   uint64     `json:"count"`
	Error   uint64     `json:"error"`
	First   *time.Time `json:"first,omitempty"`
	Last    *time.Time `json:"last,omitempty"`
	Minutes int        `json:"minutes"` // the number of minutes of the last hour in which the subject was counted
}

func topSubjectOf(rule string, s *telemetry.Subject) TopSubject {
	return TopSubject{Rule: rule, ID: s.ID, Shown: s.Shown, Count: s.Count, Error: s.Error, First: timeOf(s.First), Last: timeOf(s.Last), Minutes: s.Minutes}
}

// timeOf returns a pointer to a time, or nil for the zero time.
func timeOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

var topWindows = map[string]telemetry.Window{"minute": telemetry.Minute, "hour": telemetry.Hour, "day": telemetry.Day}

// TopQuery selects top subjects.
type TopQuery struct {
	Rule   string // empty: all rules
	By     string // "refusals" or "traffic"
	Window string // "minute", "hour" or "day"
	Limit  int    // 0: 100
}

// Top returns the top subjects of a rule, or of all rules, sorted by count.
func (c *Control) Top(who Caller, q TopQuery) (*Top, error) {
	v, err := c.view(who, source.Viewer)
	if err != nil {
		return nil, err
	}
	window, known := topWindows[q.Window]
	if !known {
		return nil, BadParameter("window", "write minute, hour or day")
	}
	if q.By != "refusals" && q.By != "traffic" {
		return nil, BadParameter("by", "write refusals or traffic")
	}
	if q.Rule != "" && v.Rule(q.Rule) == nil {
		return nil, noRule(q.Rule)
	}
	out := &Top{By: q.By, Window: window.String(), Items: []TopSubject{}}
	for i := range v.Rules {
		r := &v.Rules[i]
		if q.Rule != "" && r.Name != q.Rule {
			continue
		}
		list := r.Refusals[window].Items
		if q.By == "traffic" {
			list = r.Traffic[window].Items
		}
		for j := range list {
			s := topSubjectOf(r.Name, &list[j])
			s.Key = c.valuesFor(who, list[j].Sent)
			out.Items = append(out.Items, s)
		}
	}
	slices.SortStableFunc(out.Items, func(a, b TopSubject) int { return cmp.Compare(b.Count, a.Count) })
	out.Items = out.Items[:min(cmp.Or(q.Limit, defaultPage), len(out.Items))]
	return out, nil
}

// valuesFor returns the values of a key as clients sent them. It returns nil unless the caller is an operator and
// the rule shows whole keys.
func (c *Control) valuesFor(who Caller, key string) map[string]string {
	if !who.Role.May(source.Operator) {
		return nil
	}
	s, err := c.engine.SubjectOf(key)
	if err != nil || !s.ShownWhole() {
		return nil // the rule has changed, and may hide the key
	}
	return s.Values()
}
