package adminapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// changesRequest is a set of rules that are changed together.
type changesRequest struct {
	Rules []struct {
		Name string `json:"name"`
		// ETag is that of the rule that was read; empty for a rule that is not to exist yet.
		ETag string          `json:"etag"`
		Rule json.RawMessage `json:"rule"` // null: it is deleted
	} `json:"rules"`
}

// changedRules is what came of a set of changes, or would.
type changedRules struct {
	DryRun bool          `json:"dry_run"`
	Entry  int64         `json:"entry"` // of the audit log; 0: nothing was changed
	Rules  []changedRule `json:"rules"`
}

type changedRule struct {
	Name string `json:"name"`
	differs
}

// changeRules changes several rules in one transaction: all or none.
func (a *API) changeRules(c *call) (any, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	dry, err := q.boolean("dry_run")
	if err != nil {
		return nil, err
	}
	r, err := decode[changesRequest](c)
	switch {
	case err != nil:
		return nil, err
	case a.Policy.Database == nil:
		return nil, noDatabase()
	case len(r.Rules) == 0:
		return nil, badField("/rules", "write at least one rule")
	}
	all, out, err := a.ruleChanges(&r)
	if err != nil {
		return nil, err
	}
	old := a.Engine.Policy()
	entry, p, err := a.Policy.ChangeRules(c.Context(), c.actor, all, dry)
	if err != nil {
		return nil, explainChanges(err, all)
	}
	if !dry {
		a.Logger.Info("admin API changed the policy", "actor", c.actor, "kind", string(control.Rules), "rules", len(all), "entry", entry)
	}
	place := map[string]*differs{}
	for i := range out {
		place[out[i].Name] = &out[i].differs
	}
	for _, n := range p.Restarts(old) {
		if d := place[n.Rule]; d != nil {
			d.BeginsAnew = append(d.BeginsAnew, anew{n.Rule, n.From, n.Was, n.Is})
		}
	}
	for _, w := range p.Warnings() {
		if d := place[w.Rule]; d != nil {
			d.Warnings = append(d.Warnings, described(w))
		}
	}
	return changedRules{dry, entry, out}, nil
}

// ruleChanges reads the changes and compares them with what is there.
func (a *API) ruleChanges(r *changesRequest) (all []control.RuleChange, out []changedRule, err error) {
	bad := problemf(http.StatusUnprocessableEntity, "")
	stale := problemf(http.StatusPreconditionFailed, "")
	named := map[string]bool{}
	for i := range r.Rules {
		given := &r.Rules[i]
		at := fmt.Sprintf("/rules/%d", i)
		if given.Name == "" || named[given.Name] {
			bad.add(at+"/name", "write the name of a rule, each once")
			continue
		}
		named[given.Name] = true
		change := control.RuleChange{Name: given.Name}
		before, exists := a.lists.Find(a.Policy.Now(), control.Rules, given.Name)
		version, stored := versionIn(given.ETag)
		switch {
		case stored:
			change.Match = version // the database knows whether it still holds
		case given.ETag != "" && (!exists || given.ETag != before.ETag()), given.ETag == "" && exists:
			stale.add(at+"/etag", "the rule %s has changed since it was read: read it again", given.Name)
		}
		d := differs{Before: json.RawMessage("null"), After: json.RawMessage("null"), BeginsAnew: []anew{}, Warnings: []string{}}
		if exists {
			d.Before = control.JSON(before.Document)
		}
		if len(given.Rule) == 0 || string(given.Rule) == "null" {
			if !stored && exists {
				bad.add(at+"/rule", "the rule %s is in the policy file: remove it there", given.Name)
			}
			if i, shown := a.inFile(control.Rules, given.Name); shown {
				d.After = control.JSON(i.Document)
			}
		} else if change.Rule, err = ruleIn(given.Rule, given.Name); err != nil {
			bad.addAll(at+"/rule", err)
		} else {
			d.After = control.JSON(change.Rule)
		}
		all, out = append(all, change), append(out, changedRule{given.Name, d})
	}
	for _, p := range []*problem{bad, stale} {
		if len(p.Errors) > 0 {
			p.Detail = p.Errors[0].Detail
			return nil, nil, p
		}
	}
	return all, out, nil
}

// ruleIn reads a rule that has the given name.
func ruleIn(data []byte, name string) (*policy.Rule, error) {
	if hasNUL(data) {
		return nil, badField("", "it has a character U+0000, which no database keeps")
	}
	document, err := decodeRule(data)
	if err != nil {
		return nil, err
	}
	if own, field := identify(document, name); own != name {
		return nil, badField(field, "the rule is called %s here, and %s beside it", own, name)
	}
	return document.(*policy.Rule), nil
}

// explainChanges points at the changes that an error of the database is about.
func explainChanges(err error, all []control.RuleChange) error {
	place := map[string]string{}
	for i := range all {
		place[all[i].Name] = fmt.Sprintf("/rules/%d", i)
	}
	if conflicts := conflictsIn(err); len(conflicts) > 0 {
		p := problemf(http.StatusPreconditionFailed, "somebody else has changed %s", strings.Join(conflicts, ", "))
		for _, name := range conflicts {
			p.add(place[name]+"/etag", "the rule %s has changed since it was read: read it again", name)
		}
		return p
	}
	var found policy.Errors
	if !errors.As(err, &found) || len(found) == 0 {
		return err
	}
	p := mistakes(found, "-")
	for i := range p.Errors {
		for _, c := range all {
			if at, ours := pointer(found[i].Path, fmt.Sprintf("rules[%q]", c.Name)); ours {
				at = place[c.Name] + "/rule" + at
				p.Errors[i].Pointer = &at
			}
		}
	}
	return p
}

// conflictsIn names the rows of all conflicts in an error.
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

// conflicted reports whether somebody else was faster.
func conflicted(err error) bool {
	_, is := errors.AsType[*source.Conflict](err)
	return is
}

// add adds something that is wrong with a field of the body.
func (p *problem) add(pointer, format string, args ...any) {
	p.Errors = append(p.Errors, wrong{Pointer: &pointer, Detail: fmt.Sprintf(format, args...)})
}

// addAll adds what is wrong with a part of the body.
func (p *problem) addAll(prefix string, err error) {
	var more *problem
	if !errors.As(err, &more) || len(more.Errors) == 0 {
		p.add(prefix, "%s", plain(err))
		return
	}
	for _, w := range more.Errors {
		at := prefix
		if w.Pointer != nil {
			at += *w.Pointer
		}
		p.add(at, "%s", w.Detail)
	}
}
