package control

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// PolicyDiff is the difference between a policy and the policy in force.
type PolicyDiff struct {
	Changes    []PolicyChange `json:"changes"` // changes of settings and rules, not of overrides and subjects
	BeginsAnew []Restart      `json:"begins_anew"`
	Warnings   []string       `json:"warnings"`
	// LastHour is set if it was requested: see [Difference].
	LastHour *recent.Trial `json:"last_hour,omitempty"`
}

// PolicyChange is a setting in which the policies differ: see [policy.Change].
type PolicyChange struct {
	Rule  string `json:"rule"`
	Field string `json:"field"`
	Was   string `json:"was"`
	Is    string `json:"is"`
	New   bool   `json:"new"`
	Gone  bool   `json:"gone"`
}

// Diff returns how the policy in force would change if doc replaced the policy file; the rules of the database
// would still apply. If live is true, it also returns the effect on the latest requests.
func (c *Control) Diff(ctx context.Context, who Caller, doc policy.Document, live bool) (*PolicyDiff, error) {
	if err := who.Needs(source.Operator); err != nil {
		return nil, err
	}
	if live && c.recent == nil {
		return nil, Problemf(http.StatusConflict, "no requests are recorded: start sluice with --recent")
	}
	p, would, err := c.policy.stack.WouldFile(doc, nil)
	if found, ok := err.(policy.Errors); ok && len(found) > 0 {
		return nil, Mistakes(found, "-")
	} else if err != nil {
		return nil, err
	}
	out := &PolicyDiff{Changes: []PolicyChange{}, BeginsAnew: []Restart{}, Warnings: []string{}}
	old := c.policy.stack.Policy()
	for _, change := range p.Changes(old) {
		out.Changes = append(out.Changes, PolicyChange(change))
	}
	for _, n := range p.Restarts(old) {
		out.BeginsAnew = append(out.BeginsAnew, Restart(n))
	}
	if names := covered(&doc, would); len(names) > 0 {
		out.Warnings = append(out.Warnings, "the database replaces these rules of the file: "+strings.Join(names, ", "))
	}
	for _, w := range p.Warnings() {
		out.Warnings = append(out.Warnings, described(w))
	}
	if live {
		out.LastHour, err = c.tryOut(ctx, would)
	}
	return out, err
}

// covered returns the names of the rules of a file that rules of the database replace.
func covered(file, merged *policy.Document) (names []string) {
	for i := range merged.Rules {
		r := &merged.Rules[i]
		if r.Source == source.FromDatabase && slices.ContainsFunc(file.Rules, func(f policy.Rule) bool { return f.Name == r.Name }) {
			names = append(names, r.Name)
		}
	}
	return names
}

// tryOut returns the effect that a policy would have had on the latest requests. It returns nil if that policy is
// nil, or if requests are not recorded.
func (c *Control) tryOut(ctx context.Context, would *policy.Document) (*recent.Trial, error) {
	if c.recent == nil || would == nil {
		return nil, nil
	}
	trial, err := c.recent.Try(ctx, would)
	if err != nil && ctx.Err() != nil {
		p := Problemf(http.StatusServiceUnavailable, "trying the change on the last hour took too long, because other changes are being tried")
		p.Retry = 10
		return nil, p
	}
	return trial, err
}
