package control

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// InForce is the policy in force as written in its sources.
type InForce struct {
	Version string `json:"version"`
	// Document omits overrides and subjects. They have lists of their own, because a policy may have a hundred
	// thousand of them.
	Document  Document     `json:"document"`
	Rules     []RuleOrigin `json:"rules"`
	Overrides int          `json:"overrides"`
	Subjects  int          `json:"subjects"`
	Database  bool         `json:"database"`
	Blocks    []LocalBlock `json:"blocks"`
	Warnings  []string     `json:"warnings"`
	// Disabled has the rules of the database that are not in force: see [source.RuleRow].
	Disabled []string `json:"disabled,omitempty"`
	// Refused has the reasons why the present file or database is not in force.
	Refused []RefusedPolicy `json:"refused,omitempty"`
}

// RefusedPolicy is one reason why a file or a database is not in force.
type RefusedPolicy struct {
	Source string `json:"source"`
	Detail string `json:"detail"`
}

// maxRefused bounds the reasons for each source.
const maxRefused = 20

// Tag returns an ETag of the policy and of Refused.
func (p *InForce) Tag() string {
	if len(p.Refused) == 0 {
		return Quoted(p.Version)
	}
	sum := sha256.Sum256(JSON(p.Refused))
	return Quoted(p.Version + "-" + hex.EncodeToString(sum[:4]))
}

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
		Rules: []RuleOrigin{}, Blocks: []LocalBlock{}, Warnings: []string{}, Disabled: now.contents.Disabled(),
	}
	file, database := c.policy.stack.Refused()
	out.Refused = append(refusedBy(who, source.FromFile, file), refusedBy(who, source.FromDatabase, database)...)
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

// refusedBy returns the reasons in an error, as far as the caller may see them. Reasons about overrides and
// subjects may contain keys.
func refusedBy(who Caller, from string, err error) (all []RefusedPolicy) {
	problems, ok := errors.AsType[policy.Errors](err)
	if err != nil && !ok {
		return []RefusedPolicy{{from, err.Error()}}
	}
	for _, p := range problems[:min(len(problems), maxRefused)] {
		list, _, _ := strings.Cut(p.Path, "[")
		if (list == "overrides" || list == "subjects") && !who.Role.May(source.Operator) {
			p.Path, p.Message, p.Hint = list, "only operators can see what is wrong", ""
		}
		all = append(all, RefusedPolicy{from, p.String()})
	}
	return all
}
