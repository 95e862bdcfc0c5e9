package control_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const onePolicy = `{version: 1, rules: [{name: per-key, key: [api_key], limit: 100/day}]}`

// over returns the Config of a Control with the policy in text as its file.
func over(t *testing.T, text string) control.Config {
	t.Helper()
	doc, err := policyfile.Decode("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	e := policy.NewEngine(memory.New(), nil)
	stack := &source.Stack{Swap: e.Swap}
	if _, err := stack.File(doc, nil); err != nil {
		t.Fatal(err)
	}
	if err := stack.UseFile(); err != nil {
		t.Fatal(err)
	}
	return control.Config{Engine: e, Stack: stack, Logger: slog.New(slog.DiscardHandler)}
}

// overDatabase returns the Config of a Control with a policy file and a database.
func overDatabase(t *testing.T) control.Config {
	t.Helper()
	c := over(t, onePolicy)
	db, err := source.Open("sqlite:"+filepath.Join(t.TempDir(), "rules.db"), c.Logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Check, c.Database = c.Stack.Check, db
	return c
}

// needs has the role that each operation requires.
var needs = map[string]source.Role{
	"InForce": source.Viewer, "Shadow": source.Viewer, "Audit": source.Viewer, "List": source.Viewer, "Read": source.Viewer,
	"Subjects": source.Viewer, "SubjectByID": source.Viewer, "Check": source.Viewer, "Explain": source.Viewer,
	"Name": source.Viewer, "NameOf": source.Viewer, "OverrideName": source.Viewer, "View": source.Viewer,
	"Stats": source.Viewer, "RuleStats": source.Viewer, "Top": source.Viewer, "Refusals": source.Viewer, "Alerts": source.Viewer,
	"Reset": source.Operator, "Refund": source.Operator, "Block": source.Operator, "Unblock": source.Operator, "Silence": source.Operator, "Unsilence": source.Operator,
	"Diff": source.Operator, "PutShadow": source.Admin, "ChangeRules": source.Admin, "Previous": source.Admin, "Restore": source.Admin,
	"Create": source.Admin, "Put": source.Admin, "Delete": source.Admin, // for rules
}

// Every operation refuses callers without its role.
func TestEveryOperationNeedsARole(t *testing.T) {
	c := reflect.ValueOf(control.New(over(t, onePolicy)))
	for i := range c.NumMethod() {
		name := c.Type().Method(i).Name
		needed, known := needs[name]
		if !known {
			t.Errorf("%s: add the role that it requires to needs", name)
			continue
		}
		for _, role := range []source.Role{source.Nobody, source.Viewer, source.Operator, source.Admin} {
			out := c.Method(i).Call(arguments(t, c.Method(i).Type(), control.Caller{Name: "eve", Role: role}))
			err, _ := out[len(out)-1].Interface().(error)
			p := control.AsProblem(err)
			if refused := p != nil && p.Status == http.StatusForbidden; refused == role.May(needed) {
				t.Errorf("%s as %s: %v; it requires %s", name, role, err, needed)
			}
		}
	}
}

// arguments returns zero values for the parameters of a method, except a context, the caller, and the kind and document
// of a rule.
func arguments(t *testing.T, of reflect.Type, who control.Caller) (all []reflect.Value) {
	for i := range of.NumIn() {
		var v any
		switch of.In(i) {
		case reflect.TypeFor[context.Context]():
			v = t.Context()
		case reflect.TypeFor[control.Caller]():
			v = who
		case reflect.TypeFor[control.Kind]():
			v = control.Rules
		case reflect.TypeFor[any]():
			v = &policy.Rule{}
		default:
			v = reflect.Zero(of.In(i)).Interface()
		}
		all = append(all, reflect.ValueOf(v))
	}
	return all
}

// Operators may change overrides and assign subjects to tiers. Rules and tiers need an admin.
func TestRolesOfKinds(t *testing.T) {
	c, who := control.New(over(t, onePolicy)), control.Caller{Name: "ann", Role: source.Operator}
	for kind, document := range map[control.Kind]any{
		control.Rules: &policy.Rule{}, control.Tiers: &control.Tier{}, control.Subjects: &policy.TierSubject{}, control.Overrides: &policy.Override{},
	} {
		_, created := c.Create(t.Context(), who, document, false)
		_, put := c.Put(t.Context(), who, "x", document, control.Change{Absent: true})
		_, deleted := c.Delete(t.Context(), who, kind, "x", control.Change{Match: "*"})
		for what, err := range map[string]error{"create": created, "put": put, "delete": deleted} {
			p := control.AsProblem(err)
			if refused := p.Status == http.StatusForbidden; refused != (kind == control.Rules || kind == control.Tiers) {
				t.Errorf("%s %s: %v", what, kind, err)
			}
		}
	}
}

// A change compiles the policy once, also in a dry run. The policy that was checked before the commit is the one that
// comes into force.
func TestAChangeCompilesOnce(t *testing.T) {
	config := overDatabase(t)
	compiled := 0
	config.Stack.Accept = func(*policy.Policy) error { compiled++; return nil }
	c, who := control.New(config), control.Caller{Name: "ann", Role: source.Admin}
	rule := &policy.Rule{Name: "own", Key: []string{"client_ip"}, Limit: "1/day"}
	if _, err := c.Create(t.Context(), who, rule, false); err != nil || compiled != 1 {
		t.Errorf("%v, compiled %d times", err, compiled)
	}
	w, err := c.Read(who, control.Rules, "own")
	if err != nil {
		t.Fatal(err)
	}
	compiled = 0
	edits := []control.RuleEdit{{Name: "own", ETag: w.ETag, Rule: &policy.Rule{Limit: "2/day"}}}
	for _, dry := range []bool{true, false} {
		if _, err := c.ChangeRules(t.Context(), who, edits, dry); err != nil || compiled != 1 {
			t.Errorf("dry %v: %v, compiled %d times", dry, err, compiled)
		}
		compiled = 0
	}
	if config.Engine.Policy() != config.Stack.Policy() {
		t.Error("the policy in force is not the checked one")
	}
}

// A change modifies a copy of the document, because the caller's document may be part of the policy in force.
func TestDocumentsAreCopied(t *testing.T) {
	config := overDatabase(t)
	c, who := control.New(config), control.Caller{Name: "ann", Role: source.Operator}
	o := &policy.Override{Rule: "per-key", Key: map[string]string{"api_key": "k-1"}, Limit: "5/day", By: "bob"}
	w, err := c.Create(t.Context(), who, o, false)
	if err != nil {
		t.Fatal(err)
	}
	if by := w.Document.(*policy.Override).By; by != "ann" || o.By != "bob" {
		t.Errorf("written by %s, and By in the caller's document is %s", by, o.By)
	}
	i, err := c.Read(who, control.Overrides, w.ID)
	if err != nil || i.ETag != w.ETag || i.UpdatedBy != "ann" || i.Source != source.FromDatabase {
		t.Errorf("%+v %v", i, err)
	}
}

// A dry run returns the item before and after the change, and changes nothing.
func TestDryRun(t *testing.T) {
	config := overDatabase(t)
	c, who := control.New(config), control.Caller{Name: "ann", Role: source.Admin}
	rule := &policy.Rule{Key: []string{"api_key"}, Limit: "100/day", Algorithm: "fixed_window"}
	before := config.Engine.Policy()
	file, err := c.Read(who, control.Rules, "per-key")
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Put(t.Context(), who, "per-key", rule, control.Change{Dry: true, Match: file.ETag})
	if err != nil {
		t.Fatal(err)
	}
	d := w.Difference
	if d == nil || d.Before.(*policy.Rule).Algorithm != "" || d.After.(*policy.Rule).Name != "per-key" || len(d.BeginsAnew) != 1 {
		t.Errorf("%+v", d)
	}
	if config.Engine.Policy() != before {
		t.Error("a dry run has changed the policy")
	}
	if log, err := c.Audit(t.Context(), who, "", 0); err != nil || len(log.Items) != 0 {
		t.Errorf("%+v %v", log, err)
	}
	if w, err = c.Put(t.Context(), who, "per-key", rule, control.Change{Match: file.ETag}); err != nil || w.Created || w.Difference != nil {
		t.Errorf("%+v %v", w, err)
	}
	if _, err = c.Put(t.Context(), who, "per-key", rule, control.Change{Match: file.ETag}); control.AsProblem(err).Status != http.StatusPreconditionFailed {
		t.Errorf("a stale ETag: %v", err)
	}
}

// A full disk is reported as such, not as an unavailable database.
func TestDatabaseFull(t *testing.T) {
	t.Parallel()
	if unconfirmed := control.AsProblem(fmt.Errorf("x: %w", source.ErrUnconfirmed)).Detail; !strings.Contains(unconfirmed, "may or may not") {
		t.Errorf("unconfirmed: %q", unconfirmed)
	}
	full, unavailable := control.AsProblem(fmt.Errorf("x: %w", source.ErrFull)).Detail, control.AsProblem(fmt.Errorf("x: %w", source.ErrUnavailable)).Detail
	if !strings.Contains(full, "disk of the database is full") || strings.Contains(full, "answer") || strings.Contains(unavailable, "disk") || strings.Contains(unavailable, "change") {
		t.Errorf("full: %q, unavailable: %q", full, unavailable)
	}
}
