package console

import (
	"cmp"
	"fmt"
	"net/url"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

func lookShadow(c *call, f url.Values) (*effect, error) { return lookState(c, f, true) }

func lookEnforce(c *call, f url.Values) (*effect, error) { return lookState(c, f, false) }

// lookState returns the effect of putting a rule into shadow mode, or of enforcing it.
func lookState(c *call, f url.Values, shadow bool) (*effect, error) {
	before, err := c.rule(f.Get("rule"))
	if err != nil {
		return nil, err
	}
	name := before.Name
	e := &effect{Back: rulePage(name), Hidden: map[string]string{"rule": name}, Verb: "Enforce it", Title: "Enforce the rule " + name}
	if shadow {
		e.Verb, e.Title = "Put it into shadow mode", "Put the rule "+name+" into shadow mode"
	}
	own, err := c.item(control.Rules, name)
	if err != nil {
		return nil, err
	}
	if own != nil { // the rule as stored, without the limits that tiers in the database add
		before = own.Document.(*policy.Rule)
	}
	changed := *before
	after := &changed
	after.Shadow, after.Enforce = shadow, ""
	e.Rows = []effectRow{{"The rule", stateOf(before).Words(), stateOf(after).Words()}}
	e.Notes = append(e.Notes, ruleHourWords(c.view().Rule(name), shadow))
	if own == nil || own.Source != source.FromDatabase {
		e.How = "This rule is in the policy file, which this page cannot change. Change it there; changes are loaded automatically."
		return e, e.pasteRule(before, after)
	}
	etag := cmp.Or(f.Get("etag"), own.ETag)
	e.Hidden["etag"] = etag
	would, err := offer(c, e, func(dry bool) (*control.Written, error) {
		return c.s.Control.Put(c.Context(), c.caller, name, after, control.Change{Dry: dry, Match: etag})
	}, func(did *control.Written) undo { return putBack(name, before, did.ETag) })
	if would == nil {
		return e, err
	}
	e.Warnings = append(e.Warnings, would.Difference.Warnings...)
	e.LastHour = lastHourOf(would.Difference.LastHour)
	e.notice = fmt.Sprintf("The rule %s is %s now.", name, stateOf(after).Words())
	return e, nil
}

// pasteRule adds the changed rule to e: its text, to be written into the policy file, and the lines that change.
func (e *effect) pasteRule(before, after *policy.Rule) error {
	was, err := rulesYAML(*before)
	if err != nil {
		return err
	}
	if e.Paste, err = rulesYAML(*after); err != nil {
		return err
	}
	e.Diff = diffLines(was, e.Paste)
	return nil
}

// ruleState is the state of a rule: enforced for all subjects, for some, or for none.
type ruleState struct {
	Shadow  bool
	Enforce string // the rollout percentage, such as "10%"
	Exempt  bool
	Block   bool
	All     bool // the whole policy is in shadow mode, even if the rule is not
	Gone    bool // the rule is not in force any more
}

func stateOf(r *policy.Rule) ruleState {
	return ruleState{Shadow: r.Shadow, Enforce: r.Enforce, Exempt: r.Exempt, Block: r.Block}
}

// Name returns the name of the state: enforced, shadow, partly, exempt, block or "not in force". Filters use all of
// them except the last.
func (s ruleState) Name() string {
	switch {
	case s.Gone:
		return "not in force"
	case s.Exempt:
		return "exempt"
	case s.Shadow || s.All:
		return "shadow"
	case s.Enforce != "" && s.Enforce != "100%":
		return "partly"
	case s.Block:
		return "block"
	}
	return "enforced"
}

// Words returns the text of the badge.
func (s ruleState) Words() string {
	switch s.Name() {
	case "partly":
		return s.Enforce + " enforced"
	case "block":
		return "enforced"
	}
	return s.Name()
}

// Badge returns the style of the badge.
func (s ruleState) Badge() string {
	switch s.Name() {
	case "shadow", "partly":
		return "badge-warn"
	case "exempt", "not in force":
		return "badge-quiet"
	}
	return "badge-good"
}

// ruleHourWords describes the effect that shadow mode, or enforcing the rule, would have had in the last hour.
func ruleHourWords(r *telemetry.Rule, shadow bool) string {
	switch {
	case r == nil:
		return "No data yet, so the effect is unknown."
	case shadow:
		return hourWords(r.Recent, telemetry.Deny, r.Refused[telemetry.Hour], "Requests denied by it in the last hour, which would have been allowed")
	}
	return hourWords(r.Recent, telemetry.WouldDeny, r.Refused[telemetry.Hour], "Requests in the last hour that it would have denied")
}

func rulePage(name string) string { return "/rules/" + url.PathEscape(name) }
