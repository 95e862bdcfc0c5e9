package adminapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// inForce is the answer to what policy is in force.
type inForce struct {
	Version string `json:"version"`
	// Document is that of the policy without its overrides and subjects, which have lists of
	// their own: there may be a hundred thousand.
	Document  document     `json:"document"`
	Rules     []ruleOrigin `json:"rules"`
	Overrides int          `json:"overrides"`
	Subjects  int          `json:"subjects"`
	Database  bool         `json:"database"`
	Blocks    []blockState `json:"blocks"`
	Warnings  []string     `json:"warnings"`
}

// document is a policy as a file has it.
type document struct {
	Version int `json:"version"`
	policy.Document
}

type ruleOrigin struct {
	Name   string `json:"name"`
	Source string `json:"source"`
}

// blockState is a subject that this instance blocks by itself.
type blockState struct {
	Subject string    `json:"subject"`
	Until   time.Time `json:"until"`
}

func (a *API) policy(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	now := a.Policy.Now()
	out := inForce{
		Version: a.lists.VersionOf(now), Document: document{1, *now.Document}, Database: a.Policy.Database != nil,
		Overrides: len(now.Document.Overrides), Subjects: len(now.Document.Subjects),
		Rules: []ruleOrigin{}, Blocks: []blockState{}, Warnings: []string{},
	}
	out.Document.Overrides, out.Document.Subjects = nil, nil
	if out.Document.Rules == nil {
		out.Document.Rules = []policy.Rule{}
	}
	for _, r := range now.Document.Rules {
		out.Rules = append(out.Rules, ruleOrigin{r.Name, r.Source})
	}
	for _, b := range a.Engine.Blocks() {
		subject := b.Key
		if !c.role.May(source.Operator) {
			subject = a.Engine.Policy().ShownKey(subject)
		}
		out.Blocks = append(out.Blocks, blockState{subject, b.Until.UTC()})
	}
	for _, w := range a.Engine.Policy().Warnings() {
		out.Warnings = append(out.Warnings, described(w))
	}
	return &reply{etag: control.Quoted(out.Version), body: out}, nil
}

// auditPage is a part of the audit log, the newest first.
type auditPage struct {
	Items []source.Entry `json:"items"`
	Next  string         `json:"next,omitempty"`
}

func (a *API) audit(c *call) (any, error) {
	q, err := c.query("limit", "cursor")
	if err != nil {
		return nil, err
	}
	after, n, err := q.page()
	if err != nil {
		return nil, err
	}
	if a.Policy.Database == nil {
		return nil, noDatabase()
	}
	before := int64(0)
	if after != "" {
		if before, err = strconv.ParseInt(after, 10, 64); err != nil || before < 1 {
			return nil, badParameter("cursor", "it is none of those that this API gave")
		}
	}
	items, err := a.Policy.Database.Audit(c.Context(), before, n)
	if err != nil {
		return nil, err
	}
	page := auditPage{Items: append([]source.Entry{}, items...)}
	v := a.veilFor(c)
	for i := range page.Items {
		page.Items[i] = v.entry(page.Items[i])
	}
	if len(items) == n {
		page.Next = cursor(strconv.FormatInt(items[n-1].ID, 10))
	}
	return page, nil
}

// noDatabase is the answer to what needs one.
func noDatabase() *problem {
	return problemf(http.StatusConflict, "there is no database to change: start sluice with --rules, or change the policy file")
}
