package control

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// InForce is the policy in force as it is written.
type InForce struct {
	Version string `json:"version"`
	// Document leaves out overrides and subjects, which have lists of
	// their own: there may be a hundred thousand.
	Document  Document     `json:"document"`
	Rules     []RuleOrigin `json:"rules"`
	Overrides int          `json:"overrides"`
	Subjects  int          `json:"subjects"`
	Database  bool         `json:"database"`
	Blocks    []LocalBlock `json:"blocks"`
	Warnings  []string     `json:"warnings"`
}

// Tag returns the ETag of the policy.
func (p *InForce) Tag() string { return Quoted(p.Version) }

// Document is a policy as in a file.
type Document struct {
	Version int `json:"version"`
	policy.Document
}

// RuleOrigin is a rule and its source.
type RuleOrigin struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// LocalBlock is a subject that only this instance blocks.
type LocalBlock struct {
	Subject string    `json:"subject"`
	Until   time.Time `json:"until"`
}

// InForce returns the policy in force.
func (c *Control) InForce(who Caller) (*InForce, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	now := c.policy.now()
	out := &InForce{
		Version: now.version(), Document: Document{1, *now.document}, Database: c.policy.database != nil,
		Overrides: len(now.document.Overrides), Subjects: len(now.document.Subjects),
		Rules: []RuleOrigin{}, Blocks: []LocalBlock{}, Warnings: []string{},
	}
	out.Document.Overrides, out.Document.Subjects = nil, nil
	if out.Document.Rules == nil {
		out.Document.Rules = []policy.Rule{}
	}
	for _, r := range now.document.Rules {
		out.Rules = append(out.Rules, RuleOrigin{r.Name, r.Source})
	}
	for _, b := range c.engine.Blocks() {
		subject := b.Key
		if !who.Role.May(source.Operator) {
			subject = c.engine.Policy().ShownKey(subject)
		}
		out.Blocks = append(out.Blocks, LocalBlock{subject, b.Until.UTC()})
	}
	for _, w := range c.engine.Policy().Warnings() {
		out.Warnings = append(out.Warnings, described(w))
	}
	return out, nil
}
