package control

import (
	"context"
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// PolicyDiff is how a policy differs from the one in force.
type PolicyDiff struct {
	Changes    []PolicyChange `json:"changes"` // of settings and rules; overrides and subjects are left out
	BeginsAnew []Restart      `json:"begins_anew"`
	Warnings   []string       `json:"warnings"`
	// LastHour is set if it was asked for: see [Difference].
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

// Diff returns how the policy in force would change if another file took the place of the policy file, with the rules
// of the database on top as now. With live it returns what that would have done to the latest requests, too.
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
	for _, w := range p.Warnings() {
		out.Warnings = append(out.Warnings, described(w))
	}
	if live {
		out.LastHour, err = c.tryOut(ctx, would)
	}
	return out, err
}

// tryOut returns what a policy would have done to the latest requests. It returns nil if they are not kept, or if the
// document is nil.
func (c *Control) tryOut(ctx context.Context, would *policy.Document) (*recent.Trial, error) {
	if c.recent == nil || would == nil {
		return nil, nil
	}
	trial, err := c.recent.Try(ctx, would)
	if err != nil && ctx.Err() != nil {
		p := Problemf(http.StatusServiceUnavailable, "trying the change on the last hour took too long: others are being tried")
		p.Retry = 10
		return nil, p
	}
	return trial, err
}
