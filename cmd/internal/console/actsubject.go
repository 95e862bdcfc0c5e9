package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
)

// subjectAct returns the subject in a form, and an effect for it to fill in.
func (c *call) subjectAct(f url.Values) (*effect, *subjectRef, error) {
	ref, err := c.subjectOf(f)
	if err != nil {
		return nil, nil, err
	}
	return &effect{Back: ref.Page(), Hidden: ref.Hidden(), Whom: ref.Shown}, ref, nil
}

// offerSubject offers a change of a subject, and adds the subject's state before and after the change to the
// effect.
func offerSubject(c *call, e *effect, change func(bool) (*control.SubjectChange, error), undone func(*control.SubjectChange) undo) (*control.SubjectChange, error) {
	would, err := offer(c, e, change, undone)
	if would != nil {
		e.Rows = stateRows(&would.Before, &would.After)
	}
	return would, err
}

func lookBlock(c *call, f url.Values) (*effect, error) {
	e, ref, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	r := control.BlockRequest{Target: ref.target(f), Until: untilOf(f, "1h")}
	e.Title, e.Verb, e.Danger = "Block for the rule "+ref.Rule.Name, "Block", true
	scope := scopeOf(c.policy, ref)
	e.Fields = append(scope.field(f), append(untilFields(f, "1h"), reasonField(f, c.policy.Database))...)
	if end := ends(r.Until); end != "" {
		e.Notes = append(e.Notes, end)
	}
	if !c.policy.Database {
		e.Notes = append(e.Notes, "Without a database, the block applies only to this instance, until the instance stops.")
	}
	if scope.everywhere(f) {
		return e, e.blockEverywhere(c, ref, scope, r)
	}
	if ref.Rule.Shadow {
		e.Warnings = append(e.Warnings, "The rule is in shadow mode: a block only reports, and requests are still allowed.")
	}
	e.Notes = append(e.Notes, scope.notes([]string{ref.Rule.Name}, nil)...)
	e.notice = fmt.Sprintf("Blocked %s for %s %s.", printable(ref.Shown), ref.Rule.Name, untilWords(r.Until))
	own, was, err := c.ownOverride(ref)
	if err != nil {
		return nil, err
	}
	if own != nil && !was.Block { // Control.Block does not replace an override of another kind
		o := policy.Override{Rule: was.Rule, Key: was.Key, Block: true, Until: r.Until, Reason: r.Reason}
		return e, e.replaceOverride(c, own, was, &o)
	}
	_, err = offerSubject(c, e, func(dry bool) (*control.SubjectChange, error) {
		return c.s.Control.Block(c.Context(), c.caller, r, dry)
	}, func(did *control.SubjectChange) undo { return undoBlock(r.Target, did) })
	return e, err
}

// undoBlock returns the undo of a block.
func undoBlock(t control.Target, did *control.SubjectChange) undo {
	until := did.Before.BlockedUntil
	switch t.Reason = ""; {
	case until != nil && did.Before.Override == nil: // the subject was blocked on one instance only
		t.Reason = "as before"
		return blockAgain(control.BlockRequest{Target: t, Until: until.Format(time.RFC3339)})
	case did.Put != nil:
		return unblockAll(t.Key, []control.BlockedRule{*did.Put})
	}
	return unblockMade(t)
}

// replaceOverride offers to replace the subject's own override. The last two parameters are the documents of this
// override before and after the change.
func (e *effect) replaceOverride(c *call, own *control.Item, was, is *policy.Override) error {
	would, err := offer(c, e, func(dry bool) (*control.Written, error) {
		return c.s.Control.Put(c.Context(), c.caller, own.ID, is, control.Change{Dry: dry, Match: own.ETag})
	}, func(did *control.Written) undo { return putBack(own.ID, was, did.ETag) })
	if would == nil {
		return err
	}
	e.Rows = append(e.Rows, effectRow{"Override", overrideWords(was) + ", " + untilWords(was.Until), overrideWords(is) + ", " + untilWords(is.Until)})
	e.Notes = append(e.Notes, "This replaces the current override of the subject.")
	e.LastHour = lastHourOf(would.Difference.LastHour)
	return nil
}

func lookUnblock(c *call, f url.Values) (*effect, error) {
	e, ref, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Unblock for the rule "+ref.Rule.Name, "Unblock"
	e.Fields = []field{reasonField(f, false)}
	e.notice = fmt.Sprintf("Unblocked %s for %s.", printable(ref.Shown), ref.Rule.Name)
	would, err := offerSubject(c, e, func(dry bool) (*control.SubjectChange, error) {
		return c.s.Control.Unblock(c.Context(), c.caller, ref.target(f), dry)
	}, func(did *control.SubjectChange) undo {
		switch until, was := did.Before.BlockedUntil, did.Before.Override; {
		case was != nil && was.Document.Block:
			return recreate(was.Document)
		case !c.policy.Database && until != nil:
			return blockAgain(control.BlockRequest{Target: ref.target(nil), Until: until.Format(time.RFC3339)})
		}
		return nil
	})
	if would != nil && !would.Before.Blocked {
		e.do, e.Problem = nil, control.Problemf(http.StatusConflict, "The subject is not blocked.")
	}
	return e, err
}

func lookReset(c *call, f url.Values) (*effect, error) {
	e, ref, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Reset for the rule "+ref.Rule.Name, "Reset"
	e.Fields = []field{reasonField(f, false)}
	e.NoUndo = "Counts start at zero, and a penalty ends. This cannot be undone."
	e.notice = fmt.Sprintf("Reset %s for %s: nothing is used.", printable(ref.Shown), ref.Rule.Name)
	_, err = offerSubject(c, e, func(dry bool) (*control.SubjectChange, error) {
		return c.s.Control.Reset(c.Context(), c.caller, ref.target(f), dry)
	}, nil)
	return e, err
}

func lookRefund(c *call, f url.Values) (*effect, error) {
	e, ref, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Give back for the rule "+ref.Rule.Name, "Give back"
	e.NoUndo = "This cannot be undone. Units beyond the used amount are lost."
	request, given, wrong := refundForm(e, ref.Rule, f)
	if wrong != nil {
		e.Problem = wrong
		return e, nil
	}
	request.Target = ref.target(f)
	e.notice = fmt.Sprintf("Gave %s back to %s for %s.", given, printable(ref.Shown), ref.Rule.Name)
	_, err = offerSubject(c, e, func(dry bool) (*control.SubjectChange, error) {
		return c.s.Control.Refund(c.Context(), c.caller, request, dry)
	}, nil)
	return e, err
}

// refundForm reads the amount of a refund, which is in USD if the rule counts in USD. It also returns the amount in
// words.
func refundForm(e *effect, rule *policy.Rule, f url.Values) (r control.RefundRequest, given string, wrong *control.Problem) {
	if rule.Cost.USD != "" {
		r.USD = cmp.Or(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(f.Get("usd")), "USD")), "0.01")
		e.Fields = []field{{Name: "usd", Label: "USD", Value: r.USD, Required: true}, reasonField(f, false)}
		return r, r.USD + " USD", nil
	}
	text := cmp.Or(f.Get("units"), "1")
	e.Fields = []field{{Name: "units", Label: "Units", Kind: "number", Value: text, Required: true, Hint: "A request costs 1 unit unless the rule sets a cost."}, reasonField(f, false)}
	units, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return r, "", control.Problemf(http.StatusUnprocessableEntity, "Units must be a whole number, not %s.", printable(text))
	}
	r.Units = units
	return r, words.Counted(units, "unit"), nil
}

func lookRaise(c *call, f url.Values) (*effect, error) {
	e, ref, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Raise the limit of "+ref.Rule.Name, "Raise"
	if ref.Key == nil {
		e.Problem = control.Problemf(http.StatusConflict, "Only a hash of this long key is stored: write the override with the whole key.")
		return e, nil
	}
	states, err := c.s.Control.Subjects(c.Context(), c.caller, ref.Rule.Name, ref.Key)
	if err != nil {
		return nil, err
	}
	state := &states.Rules[0]
	flying := len(state.Limits) > 0 && limit{state.Limits[0]}.inFlight()
	text := strings.TrimSpace(f.Get("limit"))
	if text == "" {
		text = doubled(state.Limits)
	}
	until := untilOf(f, "24h")
	hint := "As in 200/minute burst 50. Separate several with commas."
	if flying {
		hint = "Maximum requests under way."
	}
	e.Fields = append([]field{{Name: "limit", Label: "New limit", Kind: "text", Value: text, Required: true, Hint: hint}}, untilFields(f, "24h")...)
	e.Fields = append(e.Fields, reasonField(f, c.policy.Database))
	o := &policy.Override{Rule: ref.Rule.Name, Key: ref.Key, Until: until, Reason: f.Get("reason")}
	o.Limits = splitLimits(text)
	if n, err := strconv.ParseInt(text, 10, 64); flying && err == nil {
		o.InFlight, o.Limits = n, nil
	} else if len(o.Limits) == 1 {
		o.Limit, o.Limits = o.Limits[0], nil
	}
	if end := ends(until); end != "" {
		e.Notes = append(e.Notes, end)
	}
	e.notice = fmt.Sprintf("%s has %s for %s, %s.", printable(ref.Shown), overrideWords(o), ref.Rule.Name, untilWords(until))
	rows := e.raised(state, o)
	if !c.policy.Database {
		e.Rows = rows
		return e, e.pasteOverride(c.policy, o)
	}
	own, was, err := c.ownOverride(ref)
	if err != nil {
		return nil, err
	}
	if own != nil {
		err = e.replaceOverride(c, own, was, o)
	} else {
		err = e.createOverride(c, o)
	}
	e.Rows = append(rows, e.Rows...)
	return e, err
}

func (e *effect) createOverride(c *call, o *policy.Override) error {
	would, err := offer(c, e, func(dry bool) (*control.Written, error) {
		return c.s.Control.Create(c.Context(), c.caller, o, dry)
	}, func(did *control.Written) undo { return removeMade(did.ID, did.ETag) })
	if would != nil {
		e.Warnings = append(e.Warnings, would.Difference.Warnings...)
		e.LastHour = lastHourOf(would.Difference.LastHour)
	}
	return err
}

// pasteOverride adds the text of an override to paste into the policy file. It is for policies without a database.
func (e *effect) pasteOverride(p *control.InForce, o *policy.Override) (err error) {
	e.How = "Without a database, add this to \"overrides\" in the policy file; changes are loaded automatically."
	own := policy.Document{Overrides: []policy.Override{*o}}
	whole := p.Document.Document
	whole.Overrides = own.Overrides
	var wrong policy.Errors
	if _, err := policy.Compile(whole); errors.As(err, &wrong) {
		e.Problem = control.Mistakes(wrong, "-")
		return nil
	}
	e.Paste, err = yamlBelow("overrides", own)
	return err
}

// raised returns the changes that an override makes to a subject's limits.
func (e *effect) raised(state *control.SubjectState, o *policy.Override) (rows []effectRow) {
	after := *state
	after.Override = &control.OverrideState{Document: o}
	after.Limits = nil
	anew := false
	for _, text := range o.LimitTexts() {
		algorithm := ""
		if len(state.Limits) > 0 {
			algorithm = state.Limits[0].Algorithm
		}
		l := control.LimitState{Limit: text, Algorithm: algorithm}
		plan := policy.LimitPlan(text, algorithm)
		if plan == nil {
			continue // the dry run reports the error
		}
		l.Capacity = plan.Limit.Value(plan.Capacity)
		l.Remaining = l.Capacity
		kept := false
		for _, was := range state.Limits {
			if old := policy.LimitPlan(was.Limit, was.Algorithm); old != nil && old.Fingerprint == plan.Fingerprint {
				l.Remaining, kept = max(0, l.Capacity-was.Used), true
			}
		}
		l.USD = control.AmountsOf(plan.Limit.Money > 0, l.Capacity, l.Capacity-l.Remaining, l.Remaining)
		anew = anew || !kept
		after.Limits = append(after.Limits, l)
	}
	if was := state.Limits; o.InFlight > 0 && len(was) > 0 { // requests in flight keep their permits
		after.Limits = []control.LimitState{{Algorithm: was[0].Algorithm, Capacity: o.InFlight, Remaining: max(0, o.InFlight-was[0].Used)}}
	}
	rows = append(rows, effectRow{"Limit", limitsHeld(state), limitsHeld(&after)})
	var was, is []string
	for i := range state.Limits {
		was = append(was, leftWords(&state.Limits[i]))
	}
	for i := range after.Limits {
		is = append(is, leftWords(&after.Limits[i]))
	}
	rows = append(rows, effectRow{"Left now", strings.Join(was, " and "), strings.Join(is, " and ")})
	if anew {
		e.Notes = append(e.Notes, "The counters of the old limit do not fit the new one, so counting starts at zero.")
	}
	if state.Blocked {
		e.Warnings = append(e.Warnings, "The subject is blocked. If an override blocks it, the new limit replaces that override. If it is blocked only on this instance, the block remains until you unblock the subject.")
	}
	return rows
}

func splitLimits(text string) (all []string) {
	for l := range strings.SplitSeq(text, ",") {
		if l = strings.TrimSpace(l); l != "" {
			all = append(all, l)
		}
	}
	return all
}

// doubled returns the limit that the form suggests: twice the present one.
func doubled(limits []control.LimitState) string {
	var all []string
	for _, s := range limits {
		if (limit{s}).inFlight() {
			return strconv.FormatInt(2*s.Capacity, 10)
		}
		l, err := sluice.ParseLimit(s.Limit)
		if err != nil {
			continue
		}
		l.Count, l.Burst = 2*l.Count, 2*l.Burst
		all = append(all, l.String())
	}
	return strings.Join(all, ", ")
}

func lookEndOverride(c *call, f url.Values) (*effect, error) {
	id := f.Get("override")
	found, err := c.item(control.Overrides, id)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, control.Problemf(http.StatusNotFound, "The override has been removed.")
	}
	o := found.Document.(*policy.Override)
	e := &effect{
		Back: "/overrides", Title: "End the override of " + o.Rule, Whom: c.shownOverride(o.Rule, o.Key), Verb: "End it now", Danger: true,
		Hidden: map[string]string{"override": id},
	}
	if found.Source != source.FromDatabase {
		e.How = "This override is in the policy file, which this page cannot change: remove it there."
		return e, nil
	}
	etag := cmp.Or(f.Get("etag"), found.ETag) // as the caller saw the override, so that a later change by another caller is kept
	e.Hidden["etag"] = etag
	would, err := offer(c, e, func(dry bool) (*control.Written, error) {
		return c.s.Control.Delete(c.Context(), c.caller, control.Overrides, id, control.Change{Dry: dry, Match: etag})
	}, func(*control.Written) undo { return recreate(o) })
	if would == nil {
		return e, err
	}
	after := "the limit of the rule, the tier or another override"
	if below, is := would.Difference.After.(*policy.Override); is {
		after = overrideWords(below) + ", from the policy file"
	}
	e.Rows = []effectRow{{"Override", overrideWords(o), after}, {"Until", untilWords(o.Until), "now"}}
	e.notice = fmt.Sprintf("Ended the override of %s for %s.", o.Rule, printable(e.Whom))
	return e, nil
}
