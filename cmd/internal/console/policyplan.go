package console

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// policyPlan has the changes that an edited policy would make, and their problems.
type policyPlan struct {
	Problem  *control.Problem // a problem of the whole text rather than a line
	Problems []lineProblem
	Warnings []lineProblem
	Changes  []ruleChange
	Notes    []string
	Diff     []diffLine // the difference of the whole texts, if there is no database to change
	LastHour *lastHour
	Same     bool
}

// Good reports whether the plan has no problems.
func (p *policyPlan) Good() bool {
	return p.Problem == nil && len(p.Problems) == 0 && !slices.ContainsFunc(p.Changes, func(c ruleChange) bool { return c.Problem != nil })
}

// Applies reports whether the plan has changes to apply and no problems.
func (p *policyPlan) Applies() bool { return p.Good() && len(p.Changes) > 0 }

// lineProblem is a problem in a line. Line is 0 if the problem does not belong to a line.
type lineProblem struct {
	Line          int
	Message, Hint string
}

// ruleChange is the change of one rule.
type ruleChange struct {
	Name, What string // "new", "changed" or "removed"
	Diff       []diffLine
	Notes      []string
	Problem    *control.Problem

	etag  string
	after *policy.Rule // nil: the rule is removed
}

// maxProblems is the maximum number of problems that are shown.
const maxProblems = 50

// planPolicy returns the plan for the edited text. base is the text before editing.
func (c *call) planPolicy(base, text string) (*policyPlan, error) {
	plan := &policyPlan{}
	edited, ok := plan.compile(text)
	if !ok {
		return plan, nil
	}
	was, err := policyfile.Decode(editedName, []byte(base))
	if err != nil {
		return nil, control.Problemf(http.StatusBadRequest, "This form is incomplete: reload the page.")
	}
	if !c.policy.Database {
		plan.Diff = diffLines(base, text)
		plan.Same = base == text
		if plan.Same {
			return plan, nil
		}
		return plan, plan.tryFile(c, edited)
	}
	if err := plan.settings(&was, edited); err != nil {
		return nil, err
	}
	own, err := c.ownRules()
	if err != nil {
		return nil, err
	}
	if err := plan.rules(was.Rules, edited.Rules, own); err != nil {
		return nil, err
	}
	if _, err := plan.send(c, true); err != nil {
		return nil, err
	}
	plan.Same = len(plan.Changes) == 0 && len(plan.Problems) == 0
	return plan, nil
}

// tryFile tries the edited policy on the latest requests, as if it replaced the policy file. If requests are not
// recorded, it does nothing.
func (p *policyPlan) tryFile(c *call, edited *policy.Document) error {
	diff, err := c.s.Control.Diff(c.Context(), c.caller, *edited, true)
	if err != nil {
		_, err = c.refusal(err)
		return err
	}
	p.LastHour = lastHourOf(diff.LastHour)
	return nil
}

// compile parses and compiles the text of a policy file.
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

// elsewhere returns a placeholder for a file that the policy names, such as a list of networks or the body of an
// answer, because this page does not read such files.
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

// settings reports a problem if the text before the rules has changed, because this page changes only rules.
func (p *policyPlan) settings(was, is *policy.Document) error {
	x, err := settingsYAML(*was)
	if err != nil {
		return err
	}
	y, err := settingsYAML(*is)
	if err != nil {
		return err
	}
	if x != y {
		p.Problems = append(p.Problems, lineProblem{Message: "only rules can be changed here", Hint: "restore the text above the rules; change settings in the policy file, or with \"sluice import\""})
	}
	return nil
}

// rules adds the changed and new rules in the order of the edited text, and then the removed rules.
func (p *policyPlan) rules(was, is []policy.Rule, own map[string]*control.Item) error {
	old, left := map[string]*policy.Rule{}, map[string]bool{}
	for i := range was {
		old[was[i].Name] = &was[i]
	}
	var order, kept []string
	for i := range is {
		name := is[i].Name
		left[name] = true
		if old[name] != nil {
			order = append(order, name)
		}
		if err := p.change(name, old[name], &is[i], own[name]); err != nil {
			return err
		}
	}
	for i := range was {
		name := was[i].Name
		if left[name] {
			kept = append(kept, name)
			continue
		}
		if err := p.change(name, &was[i], nil, own[name]); err != nil {
			return err
		}
	}
	if !slices.Equal(order, kept) {
		p.Notes = append(p.Notes, "Moving rules has no effect: they keep their old order. All rules that match a request apply, whatever their order.")
	}
	return nil
}

// change adds the change of a rule if its versions before and after the change differ. The version before is nil for
// a new rule, and the version after is nil for a removed rule.
func (p *policyPlan) change(name string, before, after *policy.Rule, own *control.Item) error {
	if before != nil && after != nil && reflect.DeepEqual(before, after) {
		return nil
	}
	was, err := ruleText(before)
	if err != nil {
		return err
	}
	is, err := ruleText(after)
	if err != nil || was == is {
		return err
	}
	c := ruleChange{Name: name, What: "changed", after: after, Diff: diffLines(was, is)}
	now, stored := "", false
	if own != nil {
		c.etag, stored = own.ETag, own.Source == source.FromDatabase
		if now, err = ruleText(own.Document.(*policy.Rule)); err != nil {
			return err
		}
	}
	switch {
	case now != was:
		c.Problem = control.Problemf(http.StatusPreconditionFailed, changedSince)
	case before == nil:
		c.What = "new"
	case after == nil:
		if c.What = "removed"; !stored {
			c.Problem = control.Problemf(http.StatusConflict, "This rule is in the policy file, which this page cannot change: remove it there.")
		}
	case !stored:
		c.Notes = append(c.Notes, "This rule is in the policy file, which does not change: a rule in the database replaces it.")
	}
	p.Changes = append(p.Changes, c)
	return nil
}

// ruleText returns the YAML text of a rule, or "" for nil.
func ruleText(r *policy.Rule) (string, error) {
	if r == nil {
		return "", nil
	}
	text, err := rulesYAML(*r)
	return strings.TrimPrefix(text, "rules:\n"), err
}

// send makes all changes in one transaction, or tries them if the parameter dry is true. It returns the ID of their
// entry in the audit log. If package control refuses a change, send sets the Problem of the change to the reason.
func (p *policyPlan) send(c *call, dry bool) (entry int64, err error) {
	if len(p.Changes) == 0 || !p.Good() {
		return 0, nil
	}
	edits := make([]control.RuleEdit, len(p.Changes))
	for i, r := range p.Changes {
		edits[i] = control.RuleEdit{Name: r.Name, ETag: r.etag, Rule: r.after}
	}
	did, err := c.s.Control.ChangeRules(c.Context(), c.caller, edits, dry)
	if err != nil {
		refused, unforeseen := c.refusal(err)
		if unforeseen == nil {
			p.refuse(refused, control.AsProblem(err).Errors)
		}
		return 0, unforeseen
	}
	for i := range did.Rules {
		p.Changes[i].foresee(&did.Rules[i].Effect)
	}
	p.LastHour = lastHourOf(did.LastHour)
	return did.Entry, nil
}

// refuse sets the Problem of each change with wrong fields, or the Problem of the plan if no change has any.
func (p *policyPlan) refuse(refused *control.Problem, wrong []control.Wrong) {
	whole := true
	for _, w := range wrong {
		if w.Pointer == nil {
			continue
		}
		index, _, _ := strings.Cut(strings.TrimPrefix(*w.Pointer, "/rules/"), "/")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i >= len(p.Changes) {
			continue
		}
		whole = false
		r := &p.Changes[i]
		switch {
		case r.Problem != nil:
			r.Problem.Errors = append(r.Problem.Errors, control.Wrong{Detail: w.Detail})
		case refused.Status == http.StatusPreconditionFailed: // another caller has changed the rules in the meantime
			r.Problem = control.Problemf(refused.Status, "%s", refused.Detail)
		default:
			r.Problem = control.Problemf(refused.Status, "%s", w.Detail)
		}
	}
	if whole {
		p.Problem = refused
	}
}

// foresee adds the result of a dry run to a change.
func (r *ruleChange) foresee(would *control.Effect) {
	if r.What == "removed" && would.After != nil {
		r.Notes = append(r.Notes, "The policy file has a rule with this name, which will apply instead.")
	}
	r.Notes = append(r.Notes, restartWords(would.BeginsAnew)...)
	r.Notes = append(r.Notes, would.Warnings...)
}
