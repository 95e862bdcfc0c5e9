package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// policyText is the policy in force as people write it, with where each rule is from, and the ETags
// of the rules. Rules are as the file or the database has them: what tiers of the database put into
// them is not theirs.
func (c *call) policyText(p *inForce) (text string, seen map[string]ruleSeen, err error) {
	items, _, err := c.list("/v1/rules", nil)
	if err != nil {
		return "", nil, err
	}
	own := map[string]*item{}
	for i := range items {
		own[items[i].ID] = &items[i]
	}
	var b strings.Builder
	settings, err := settingsText(p.document)
	if err != nil {
		return "", nil, err
	}
	b.WriteString(settings + "rules:\n")
	seen = map[string]ruleSeen{}
	// Rules of one source that stand together are written at once: there may be ten thousand.
	for i := 0; i < len(p.Document.Rules); {
		from := p.Rules[i].Source
		var some []json.RawMessage
		for ; i < len(p.Document.Rules) && (p.Rules[i].Source == from || !p.Database); i++ {
			rule, name := p.Document.Rules[i], p.Rules[i].Name
			if o := own[name]; o != nil && !o.Disabled {
				rule, seen[name] = o.Document, ruleSeen{o.ETag, o.Source}
			}
			some = append(some, rule)
		}
		if p.Database {
			fmt.Fprintf(&b, "  # From the %s:\n", from)
		}
		text, err := yamlOf("rules", some...)
		if err != nil {
			return "", nil, err
		}
		b.WriteString(strings.TrimPrefix(text, "rules:\n"))
	}
	if len(p.Document.Rules) == 0 {
		return settings + "rules: []\n", seen, nil
	}
	return b.String(), seen, nil
}

// ruleSeen is what was known of a rule when it was shown.
type ruleSeen struct {
	ETag   string `json:"etag"`
	Source string `json:"source"`
}

// settingsText is a policy as YAML down to its rules.
func settingsText(document json.RawMessage) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return "", err
	}
	fields["rules"] = json.RawMessage("[]")
	without, err := json.Marshal(fields)
	if err != nil {
		return "", err
	}
	doc, err := policyfile.Decode("policy.json", without)
	if err != nil {
		return "", err
	}
	text, err := policyfile.Encode("policy.yaml", doc)
	return strings.TrimSuffix(string(text), "rules: []\n"), err
}

// policyPlan is what would become of an edited policy.
type policyPlan struct {
	Problem  *problem // of the whole, and of no line
	Problems []lineProblem
	Warnings []lineProblem
	Changes  []ruleChange
	Notes    []string
	Diff     []diffLine // of the whole text, where there is no database to change
	Same     bool
}

// Good reports whether nothing stands against it.
func (p *policyPlan) Good() bool {
	return p.Problem == nil && len(p.Problems) == 0 && !slices.ContainsFunc(p.Changes, func(c ruleChange) bool { return c.Problem != nil })
}

// Applies reports whether there is something to apply, and nothing against it.
func (p *policyPlan) Applies() bool { return p.Good() && len(p.Changes) > 0 }

// lineProblem is something wrong with a line; Line is 0 where it is about no line.
type lineProblem struct {
	Line          int
	Message, Hint string
}

// ruleChange is what becomes of one rule.
type ruleChange struct {
	Name, What string // "new", "changed" or "removed"
	Diff       []diffLine
	Notes      []string
	Problem    *problem

	seen  ruleSeen
	after json.RawMessage // nil: it is removed
}

const editedName = "policy.yaml"

// maxProblems is how many are told at once.
const maxProblems = 50

// planPolicy looks what would come of an edited text that was made of base, of which seen tells what
// was known then.
func (c *call) planPolicy(p *inForce, base, text string, seen map[string]ruleSeen) (*policyPlan, error) {
	plan := &policyPlan{}
	edited, ok := plan.compile(text)
	if !ok {
		return plan, nil
	}
	was, err := policyfile.Decode(editedName, []byte(base))
	if err != nil {
		return nil, problemf(http.StatusBadRequest, "This form has lost what was shown first: load the page again.")
	}
	if !p.Database {
		plan.Diff = diffLines(base, text)
		plan.Same = base == text
		return plan, nil
	}
	if err := plan.settings(&was, edited); err != nil {
		return nil, err
	}
	if err := plan.rules(was.Rules, edited.Rules, seen); err != nil {
		return nil, err
	}
	if _, err := plan.send(c, true); err != nil {
		return nil, err
	}
	plan.Same = len(plan.Changes) == 0 && len(plan.Problems) == 0
	return plan, nil
}

// compile reads and compiles a text as a file's.
func (p *policyPlan) compile(text string) (*policy.Document, bool) {
	var doc policy.Document
	compiled, err := policyfile.ParseTo(editedName, []byte(text), elsewhere, func(d policy.Document, where func(string) (string, int)) (*policy.Policy, error) {
		doc = d
		return policy.CompileAt(d, where)
	})
	if err != nil {
		found, ok := err.(policy.Errors)
		if !ok {
			found = policy.Errors{{Message: err.Error()}}
		}
		p.Problems = linesOfProblems(found)
		return nil, false
	}
	p.Warnings = linesOfProblems(compiled.Warnings())
	return &doc, true
}

// elsewhere stands for what a policy has in other files, which this page does not read: networks, or
// the body of an answer.
func elsewhere(path string) ([]byte, error) {
	if strings.HasSuffix(path, ".json") {
		return []byte("{}"), nil
	}
	return []byte("192.0.2.0/24\n"), nil
}

func linesOfProblems(found []policy.Problem) (all []lineProblem) {
	for i, e := range found {
		if i == maxProblems {
			return append(all, lineProblem{Message: fmt.Sprintf("and %d more", len(found)-i)})
		}
		l := lineProblem{Message: e.Message, Hint: e.Hint}
		if e.File == editedName {
			l.Line = e.Line
		}
		if e.Rule != "" && !strings.Contains(e.Message, e.Rule) {
			l.Message = "rule " + printable(e.Rule) + ": " + l.Message
		}
		all = append(all, l)
	}
	return all
}

// settings says that what is no rule is not changed here.
func (p *policyPlan) settings(was, is *policy.Document) error {
	a, b := *was, *is
	a.Rules, b.Rules = nil, nil
	x, err := json.Marshal(a)
	if err != nil {
		return err
	}
	y, err := json.Marshal(b)
	if err != nil {
		return err
	}
	// Lists of networks that are in files have no networks in the base.
	if !bytes.Equal(x, y) {
		p.Problems = append(p.Problems, lineProblem{Message: "only rules are changed here", Hint: "put back what stands above the rules; change the rest in the policy file, or by \"sluice rules import\""})
	}
	return nil
}

// rules finds what has changed, in the order of the edited text, and what is gone behind it.
func (p *policyPlan) rules(was, is []policy.Rule, seen map[string]ruleSeen) error {
	old := map[string]json.RawMessage{}
	for i := range was {
		data, err := json.Marshal(&was[i])
		if err != nil {
			return err
		}
		old[was[i].Name] = data
	}
	left := map[string]bool{}
	order := []string{}
	for i := range is {
		name := is[i].Name
		left[name] = true
		data, err := json.Marshal(&is[i])
		if err != nil {
			return err
		}
		before, known := old[name]
		if known {
			order = append(order, name)
		}
		if bytes.Equal(before, data) {
			continue
		}
		if err := p.changed(name, before, data, seen[name]); err != nil {
			return err
		}
	}
	kept := []string{}
	for i := range was {
		name := was[i].Name
		if left[name] {
			kept = append(kept, name)
			continue
		}
		if err := p.removed(name, old[name], seen[name]); err != nil {
			return err
		}
	}
	if !slices.Equal(order, kept) {
		p.Notes = append(p.Notes, "The order of the rules stays as it is. All rules that match apply, whatever their order.")
	}
	return nil
}

func (p *policyPlan) changed(name string, before, after json.RawMessage, seen ruleSeen) (err error) {
	c := ruleChange{Name: name, What: "changed", after: after, seen: seen}
	switch {
	case before == nil:
		c.What = "new"
	case seen.Source != "database":
		c.Notes = append(c.Notes, "It is in the policy file, which stays as it is: the database's takes its place.")
	}
	was := ""
	if before != nil {
		if was, err = yamlOf("rules", before); err != nil {
			return err
		}
	}
	is, err := yamlOf("rules", after)
	if err != nil {
		return err
	}
	c.Diff = diffLines(strings.TrimPrefix(was, "rules:\n"), strings.TrimPrefix(is, "rules:\n"))
	p.Changes = append(p.Changes, c)
	return nil
}

func (p *policyPlan) removed(name string, before json.RawMessage, seen ruleSeen) error {
	c := ruleChange{Name: name, What: "removed", seen: seen}
	was, err := yamlOf("rules", before)
	if err != nil {
		return err
	}
	c.Diff = diffLines(strings.TrimPrefix(was, "rules:\n"), "")
	if seen.Source != "database" {
		c.Problem = problemf(http.StatusConflict, "It is in the policy file, which this page does not write: remove it there.")
	}
	p.Changes = append(p.Changes, c)
	return nil
}

// send makes all changes in one transaction, or only tries them, and returns the ID of their entry in the
// audit log. What stands against a change becomes its Problem.
func (p *policyPlan) send(c *call, dry bool) (entry int64, err error) {
	if len(p.Changes) == 0 || !p.Good() {
		return 0, nil
	}
	type change struct {
		Name string          `json:"name"`
		ETag string          `json:"etag"`
		Rule json.RawMessage `json:"rule"`
	}
	var body struct {
		Rules []change `json:"rules"`
	}
	for _, r := range p.Changes {
		body.Rules = append(body.Rules, change{r.Name, r.seen.ETag, r.after})
	}
	path := "/v1/policy/changes"
	if dry {
		path += "?dry_run=true"
	}
	var would struct {
		Entry int64        `json:"entry"`
		Rules []difference `json:"rules"`
	}
	if err := c.do("POST", path, body, &would); err != nil {
		var raw *problem
		errors.As(err, &raw)
		refused, err := asProblem(err)
		if err == nil {
			p.refuse(refused, raw.Fields)
		}
		return 0, err
	}
	for i := range would.Rules {
		p.Changes[i].foresee(&would.Rules[i])
	}
	return would.Entry, nil
}

// refuse sets the Problem of each change that fields point at, or else that of the whole.
func (p *policyPlan) refuse(refused *problem, fields []fieldProblem) {
	whole := true
	for _, f := range fields {
		place, _, _ := strings.Cut(strings.TrimPrefix(f.Pointer, "/rules/"), "/")
		i, err := strconv.Atoi(place)
		if err != nil || i < 0 || i >= len(p.Changes) {
			continue
		}
		whole = false
		r := &p.Changes[i]
		switch {
		case r.Problem != nil:
			r.Problem.Fields = append(r.Problem.Fields, fieldProblem{Detail: f.Detail})
		case refused.Status == http.StatusPreconditionFailed: // somebody was quicker
			r.Problem = &problem{Status: refused.Status, Text: refused.Text}
		default:
			r.Problem = &problem{Status: refused.Status, Text: f.Detail}
		}
	}
	if whole {
		p.Problem = refused
	}
}

// foresee notes what a dry run has found.
func (r *ruleChange) foresee(would *difference) {
	if r.What == "removed" && len(would.After) > 0 && string(would.After) != "null" {
		r.Notes = append(r.Notes, "The policy file has a rule of this name, too, which holds then.")
	}
	for _, a := range would.BeginsAnew {
		r.Notes = append(r.Notes, fmt.Sprintf("What was counted for %s begins anew: %s becomes %s.", a.Rule, a.Was, a.Is))
	}
	r.Notes = append(r.Notes, would.Warnings...)
}
