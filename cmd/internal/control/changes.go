package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// RuleEdit is the change of one rule in a set of changes.
type RuleEdit struct {
	Name string
	// ETag is the ETag of the rule that the caller has read. If it is empty, the rule must not exist.
	ETag string
	Rule *policy.Rule // nil: delete the rule
	// Unreadable is the error of decoding the rule, or nil.
	Unreadable error
}

// ChangedRules is the result of a set of edits, or of its dry run.
type ChangedRules struct {
	DryRun bool          `json:"dry_run"`
	Entry  int64         `json:"entry"` // ID in the audit log; 0: nothing was changed
	Rules  []ChangedRule `json:"rules"`
	// LastHour is set by a dry run: see [Difference].
	LastHour *recent.Trial `json:"last_hour,omitempty"`
}

// ChangedRule is the result of the edit with the same index.
type ChangedRule struct {
	Name string `json:"name"`
	Effect
}

// ChangeRules makes either all or none of the edits, in one transaction.
func (c *Control) ChangeRules(ctx context.Context, who Caller, edits []RuleEdit, dry bool) (*ChangedRules, error) {
	if err := who.Needs(source.Admin); err != nil {
		return nil, err
	}
	switch {
	case c.policy.database == nil:
		return nil, noDatabase()
	case len(edits) == 0:
		return nil, BadField("/rules", "write at least one rule")
	}
	all, changed, err := c.ruleChanges(edits)
	if err != nil {
		return nil, err
	}
	old := c.engine.Policy()
	var entry int64
	p, err := c.policy.change(ctx, who.Name, dry, func(tx *source.Tx) (err error) {
		entry, err = tx.ChangeRules(all)
		return err
	})
	switch {
	case err != nil:
		return nil, explainChanges(err, all)
	case dry:
		entry = 0 // the entry was rolled back
	default:
		c.logAct(who, "policy changed", "kind", string(Rules), "rules", len(all), "entry", entry)
	}
	effects := map[string]*Effect{}
	for i := range changed {
		effects[changed[i].Name] = &changed[i].Effect
	}
	for _, n := range p.Restarts(old) {
		if e := effects[n.Rule]; e != nil {
			e.BeginsAnew = append(e.BeginsAnew, Restart(n))
		}
	}
	for _, w := range p.Warnings() {
		if e := effects[w.Rule]; e != nil {
			e.Warnings = append(e.Warnings, described(w))
		}
	}
	hour, err := c.tryOut(ctx, p.document)
	return &ChangedRules{dry, entry, changed, hour}, err
}

// ruleChanges compares edits with the rules in force.
func (c *Control) ruleChanges(edits []RuleEdit) (all []source.RuleChange, changed []ChangedRule, err error) {
	bad := Problemf(http.StatusUnprocessableEntity, "")
	stale := Problemf(http.StatusPreconditionFailed, "")
	named := map[string]bool{}
	for i := range edits {
		edit := &edits[i]
		at := fmt.Sprintf("/rules/%d", i)
		if edit.Name == "" || named[edit.Name] {
			bad.add(at+"/name", "write the name of a rule, a different one in each edit")
			continue
		}
		named[edit.Name] = true
		change, effect := c.ruleChange(edit, at, bad, stale)
		all, changed = append(all, change), append(changed, ChangedRule{edit.Name, effect})
	}
	for _, p := range []*Problem{bad, stale} {
		if len(p.Errors) > 0 {
			p.Detail = p.Errors[0].Detail
			return nil, nil, p
		}
	}
	return all, changed, nil
}

// ruleChange compares one edit with the rule in force. It adds the mistakes and conflicts that it finds to the two
// problems. The pointer is the JSON pointer to the edit.
func (c *Control) ruleChange(edit *RuleEdit, pointer string, mistakes, conflicts *Problem) (source.RuleChange, Effect) {
	change := source.RuleChange{Delete: edit.Rule == nil && edit.Unreadable == nil}
	before, exists := c.policy.now().find(Rules, edit.Name)
	version, stored := versionIn(edit.ETag)
	switch {
	case stored:
		change.Match = version // the database checks the version again
	case edit.ETag != "" && (!exists || edit.ETag != before.ETag()), edit.ETag == "" && exists:
		conflicts.add(pointer+"/etag", "the rule %s has changed since it was read: read it again", edit.Name)
	}
	effect := effectOn(&before, exists)
	if change.Delete {
		if !stored && exists {
			mistakes.add(pointer+"/rule", "the rule %s is in the policy file: remove it there", edit.Name)
		}
		if i, shown := c.inFile(Rules, edit.Name); shown {
			effect.After = i.Document
		}
	} else if rule, err := edit.named(); err != nil {
		mistakes.addAll(pointer+"/rule", err)
	} else {
		change.Row.Rule, effect.After = rule, &rule
	}
	change.Row.Name = edit.Name
	return change, effect
}

// named returns the rule of an edit with its name set.
func (edit *RuleEdit) named() (r policy.Rule, err error) {
	if edit.Unreadable != nil {
		return r, edit.Unreadable
	}
	r = *edit.Rule
	r.Name = cmp.Or(r.Name, edit.Name)
	if r.Name != edit.Name {
		return r, BadField("/name", "the rule has the name %s, but the edit is for the rule %s", r.Name, edit.Name)
	}
	return r, nil
}

// explainChanges converts an error of the database to a problem that points to the failed edits.
func explainChanges(err error, all []source.RuleChange) error {
	pointers := map[string]string{}
	for i := range all {
		pointers[all[i].Row.Name] = fmt.Sprintf("/rules/%d", i)
	}
	if conflicts := conflictsIn(err); len(conflicts) > 0 {
		p := Problemf(http.StatusPreconditionFailed, "another request has changed %s", strings.Join(conflicts, ", "))
		for _, name := range conflicts {
			p.add(pointers[name]+"/etag", "the rule %s has changed since it was read: read it again", name)
		}
		return p
	}
	var found policy.Errors
	if !errors.As(err, &found) || len(found) == 0 {
		return err
	}
	p := Mistakes(found, "-")
	for i := range p.Errors {
		for _, c := range all {
			if at, ours := pointer(found[i].Path, fmt.Sprintf("rules[%q]", c.Row.Name)); ours {
				at = pointers[c.Row.Name] + "/rule" + at
				p.Errors[i].Pointer = &at
			}
		}
	}
	return p
}

// conflictsIn returns the names of the rows that had conflicts, from an error.
func conflictsIn(err error) (all []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, conflictsIn(e)...)
		}
		return all
	}
	if conflict, is := errors.AsType[*source.Conflict](err); is {
		all = append(all, conflict.Target)
	}
	return all
}

// conflicted reports whether an error is a conflict with another change.
func conflicted(err error) bool {
	_, is := errors.AsType[*source.Conflict](err)
	return is
}
