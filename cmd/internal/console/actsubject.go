package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// subjectAct begins the effect of an act on a subject.
func (c *call) subjectAct(f url.Values) (*effect, *subjectRef, *inForce, error) {
	p, err := c.policyInForce()
	if err != nil {
		return nil, nil, nil, err
	}
	ref, err := c.subjectOf(p, f)
	if err != nil {
		return nil, nil, nil, err
	}
	return &effect{Back: ref.Page(), Hidden: ref.Hidden(), Whom: ref.Shown}, ref, p, nil
}

// try asks for a dry run of an operation on a subject, and shows what it would change.
func (e *effect) try(c *call, path string, body map[string]any) (*changedSubject, error) {
	o := operation{method: "POST", path: path, body: body}
	var would changedSubject
	if foreseen, err := e.foresee(c, o, &would); !foreseen {
		return nil, err
	}
	e.operation = o
	e.Rows = stateRows(&would.Before, &would.After)
	return &would, nil
}

func lookBlock(c *call, f url.Values) (*effect, error) {
	e, ref, p, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	until := untilOf(f, "1h")
	e.Title, e.Verb, e.Danger = "Block for the rule "+ref.Rule.Name, "Block", true
	scope, err := scopeOf(p, ref)
	if err != nil {
		return nil, err
	}
	e.Fields = append(scope.field(f), append(untilFields(f, "1h"), reasonField(f, p.Database))...)
	if end := ends(until); end != "" {
		e.Notes = append(e.Notes, end)
	}
	if !p.Database {
		e.Notes = append(e.Notes, "There is no database, so the block is of this instance alone, and ends with it.")
	}
	if scope.everywhere(f) {
		return e, e.blockEverywhere(c, ref, scope, until, f.Get("reason"))
	}
	if ref.Rule.Shadow {
		e.Warnings = append(e.Warnings, "The rule is a shadow: a block only reports, and its requests still pass.")
	}
	e.Notes = append(e.Notes, scope.open([]string{ref.Rule.Name}, nil)...)
	e.said = fmt.Sprintf("Blocked %s for %s %s.", printable(ref.Shown), ref.Rule.Name, untilWords(until))
	own, was, err := c.ownOverride(ref)
	if err != nil {
		return nil, err
	}
	if own != nil && !was.Block { // which the API would not replace by itself
		o := policy.Override{Rule: was.Rule, Key: was.Key, Block: true, Until: until, Reason: f.Get("reason")}
		return e, e.replaceOverride(c, ref, own, was, &o)
	}
	body := ref.target()
	body["until"], body["reason"] = until, f.Get("reason")
	would, err := e.try(c, "/v1/subjects/block", body)
	if err != nil || would == nil {
		return e, err
	}
	e.undo = func() ([]operation, error) {
		switch {
		case own != nil:
			return c.restore(ref, was)
		case would.Before.Blocked && !would.Before.BlockedUntil.IsZero() && would.Before.Override == nil:
			again := ref.target()
			again["until"], again["reason"] = would.Before.BlockedUntil.Format(time.RFC3339), "as before"
			return []operation{{method: "POST", path: "/v1/subjects/block", body: again}}, nil
		case p.Database: // by its ETag, so that a block that somebody else has changed since stays
			if all, err := c.restore(ref, nil); err != nil || len(all) > 0 {
				return all, err
			}
		}
		return []operation{{method: "POST", path: "/v1/subjects/unblock", body: ref.target()}}, nil
	}
	return e, nil
}

// replaceOverride puts another override in the place of the subject's own.
func (e *effect) replaceOverride(c *call, ref *subjectRef, own *item, was, is *policy.Override) error {
	e.operation = operation{method: "PUT", path: "/v1/overrides/" + own.ID, match: own.ETag, body: is}
	var would difference
	if foreseen, err := e.foresee(c, e.operation, &would); !foreseen {
		return err
	}
	e.Rows = append(e.Rows, effectRow{"Override", overrideWords(was) + ", " + untilWords(was.Until), overrideWords(is) + ", " + untilWords(is.Until)})
	e.Notes = append(e.Notes, "It takes the place of the override that the subject has.")
	e.undo = func() ([]operation, error) { return c.restore(ref, was) }
	return nil
}

// restore returns what puts the override of a subject back that was there before the one that there
// is now; was is nil if there was none.
func (c *call) restore(ref *subjectRef, was *policy.Override) ([]operation, error) {
	own, _, err := c.ownOverride(ref)
	switch {
	case err != nil:
		return nil, err
	case own == nil && was == nil:
		return nil, nil
	case own == nil:
		return []operation{{method: "POST", path: "/v1/overrides", body: was}}, nil
	case was == nil:
		return []operation{{method: "DELETE", path: "/v1/overrides/" + own.ID, match: own.ETag}}, nil
	}
	return []operation{{method: "PUT", path: "/v1/overrides/" + own.ID, match: own.ETag, body: was}}, nil
}

func lookUnblock(c *call, f url.Values) (*effect, error) {
	e, ref, p, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Unblock for the rule "+ref.Rule.Name, "Unblock"
	e.Fields = []field{reasonField(f, false)}
	e.said = fmt.Sprintf("Unblocked %s for %s.", printable(ref.Shown), ref.Rule.Name)
	own, was, err := c.ownOverride(ref)
	if err != nil {
		return nil, err
	}
	body := ref.target()
	body["reason"] = f.Get("reason")
	would, err := e.try(c, "/v1/subjects/unblock", body)
	if err != nil || would == nil {
		return e, err
	}
	if !would.Before.Blocked {
		e.operation, e.Problem = operation{}, problemf(http.StatusConflict, "It is not blocked.")
		return e, nil
	}
	e.undo = func() ([]operation, error) {
		switch {
		case own != nil && was.Block:
			return c.restore(ref, was)
		case !p.Database && !would.Before.BlockedUntil.IsZero():
			again := ref.target()
			again["until"] = would.Before.BlockedUntil.Format(time.RFC3339)
			return []operation{{method: "POST", path: "/v1/subjects/block", body: again}}, nil
		}
		return nil, nil
	}
	return e, nil
}

func lookReset(c *call, f url.Values) (*effect, error) {
	e, ref, _, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Reset for the rule "+ref.Rule.Name, "Reset"
	e.Fields = []field{reasonField(f, false)}
	e.NoUndo = "What was counted is forgotten, and a penalty lifted. This cannot be undone."
	e.said = fmt.Sprintf("Reset %s for %s: nothing is used.", printable(ref.Shown), ref.Rule.Name)
	body := ref.target()
	body["reason"] = f.Get("reason")
	_, err = e.try(c, "/v1/subjects/reset", body)
	return e, err
}

func lookRefund(c *call, f url.Values) (*effect, error) {
	e, ref, _, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	text := f.Get("units")
	if text == "" {
		text = "1"
	}
	e.Title, e.Verb = "Give back for the rule "+ref.Rule.Name, "Give back"
	e.Fields = []field{{Name: "units", Label: "Units", Kind: "number", Value: text, Required: true, Hint: "A request costs 1 unit unless the rule says otherwise."}, reasonField(f, false)}
	e.NoUndo = "What is given back cannot be taken again. What was not used is lost."
	units, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		e.Problem = problemf(http.StatusUnprocessableEntity, "Units is a whole number, and %s is none.", printable(text))
		return e, nil
	}
	e.said = fmt.Sprintf("Gave %s back to %s for %s.", several(units, "unit"), printable(ref.Shown), ref.Rule.Name)
	body := ref.target()
	body["units"], body["reason"] = units, f.Get("reason")
	_, err = e.try(c, "/v1/subjects/refund", body)
	return e, err
}

func lookRaise(c *call, f url.Values) (*effect, error) {
	e, ref, p, err := c.subjectAct(f)
	if err != nil {
		return nil, err
	}
	e.Title, e.Verb = "Raise the limit of "+ref.Rule.Name, "Raise"
	if ref.Key == nil {
		e.Problem = problemf(http.StatusConflict, "Its key is too long to be kept, so that only a hash of it is known: write the override with the whole key.")
		return e, nil
	}
	states, err := c.subjectStates(ref.Rule.Name, ref.Key)
	if err != nil || len(states) == 0 {
		return nil, err
	}
	state := &states[0]
	flying := len(state.Limits) > 0 && state.Limits[0].inFlight()
	text := strings.TrimSpace(f.Get("limit"))
	if text == "" {
		text = doubled(state.Limits)
	}
	until := untilOf(f, "24h")
	hint := "As in 200/minute burst 50. Separate several with commas."
	if flying {
		hint = "How many requests may be under way at once."
	}
	e.Fields = append([]field{{Name: "limit", Label: "New limit", Kind: "text", Value: text, Required: true, Hint: hint}}, untilFields(f, "24h")...)
	e.Fields = append(e.Fields, reasonField(f, p.Database))
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
	e.said = fmt.Sprintf("%s has %s for %s, %s.", printable(ref.Shown), overrideWords(o), ref.Rule.Name, untilWords(until))
	rows := e.raised(state, o)
	if !p.Database {
		e.Rows = rows
		return e, e.pasteOverride(ref, o)
	}
	own, was, err := c.ownOverride(ref)
	if err != nil {
		return nil, err
	}
	if own != nil {
		err = e.replaceOverride(c, ref, own, was, o)
	} else {
		err = e.createOverride(c, ref, o)
	}
	e.Rows = append(rows, e.Rows...)
	return e, err
}

func (e *effect) createOverride(c *call, ref *subjectRef, o *policy.Override) error {
	e.operation = operation{method: "POST", path: "/v1/overrides", body: o}
	var would difference
	if foreseen, err := e.foresee(c, e.operation, &would); !foreseen {
		return err
	}
	e.Warnings = append(e.Warnings, would.Warnings...)
	e.undo = func() ([]operation, error) { return c.restore(ref, nil) }
	return nil
}

// pasteOverride shows what to write into the file, for want of a database.
func (e *effect) pasteOverride(ref *subjectRef, o *policy.Override) error {
	e.How = "There is no database that keeps overrides. Write this into the policy file, below what \"overrides\" has already; the file is read again when it changes."
	if _, err := policy.ParseUntil(o.Until); err != nil {
		e.Problem = problemf(http.StatusUnprocessableEntity, "%s.", sentence(err))
		return nil
	}
	if o.InFlight != 0 {
		if _, err := sluice.NewInFlight(o.InFlight); err != nil {
			e.Problem = problemf(http.StatusUnprocessableEntity, "%s.", sentence(err))
			return nil
		}
	}
	for _, l := range append(o.Limits, o.Limit) {
		if _, err := sluice.ParseLimit(l); err != nil && l != "" {
			e.Problem = problemf(http.StatusUnprocessableEntity, "%s.", sentence(err))
			return nil
		}
	}
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	e.Paste, err = yamlOf("overrides", data)
	return err
}

// raised says what another limit makes of what was counted.
func (e *effect) raised(state *subjectState, o *policy.Override) (rows []effectRow) {
	after := *state
	after.Override = &overrideState{Document: *o}
	after.Limits = nil
	anew := false
	for _, text := range splitLimits(strings.Join(append(o.Limits, o.Limit), ",")) {
		algorithm := ""
		if len(state.Limits) > 0 {
			algorithm = state.Limits[0].Algorithm
		}
		l := limitState{Limit: text, Algorithm: algorithm}
		plan := policy.LimitPlan(text, algorithm)
		if plan == nil {
			continue // the dry run says what is wrong with it
		}
		l.Capacity, l.Remaining = plan.Capacity, plan.Capacity
		kept := false
		for _, was := range state.Limits {
			if old := policy.LimitPlan(was.Limit, was.Algorithm); old != nil && old.Fingerprint == plan.Fingerprint {
				l.Remaining, kept = max(0, plan.Capacity-was.Used), true
			}
		}
		anew = anew || !kept
		after.Limits = append(after.Limits, l)
	}
	if was := state.Limits; o.InFlight > 0 && len(was) > 0 { // who is under way keeps their places
		after.Limits = []limitState{{Algorithm: was[0].Algorithm, Capacity: o.InFlight, Remaining: max(0, o.InFlight-was[0].Used)}}
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
		e.Notes = append(e.Notes, "The counters of the old limit do not fit the new one, so counting starts at zero: what was used no longer counts.")
	}
	if state.Blocked {
		e.Warnings = append(e.Warnings, "The subject is blocked. A limit of its own takes the place of a block by override; a block of an instance stays until it is unblocked.")
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

// doubled is what limits are raised to if nobody says to what.
func doubled(limits []limitState) string {
	var all []string
	for _, s := range limits {
		if s.inFlight() {
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
	found, err := c.item("/v1/overrides", id)
	if err != nil {
		return nil, err
	}
	e := &effect{Back: "/overrides", Title: "End an override", Verb: "End it now", Danger: true, Hidden: map[string]string{"override": id}}
	if found == nil {
		return nil, problemf(http.StatusNotFound, "There is no such override now: it has been removed.")
	}
	o, err := decoded[policy.Override](found.Document)
	if err != nil {
		return nil, err
	}
	e.Title, e.Whom = "End the override of "+o.Rule, c.s.shownOverride(o.Rule, o.Key)
	if found.Source != "database" {
		e.How = "This override is in the policy file, which this page does not write: remove it there."
		return e, nil
	}
	// The ETag that was seen, so that another's change is not lost.
	etag := f.Get("etag")
	if etag == "" {
		etag = found.ETag
	}
	e.Hidden["etag"] = etag
	e.operation = operation{method: "DELETE", path: "/v1/overrides/" + found.ID, match: etag}
	var would difference
	if foreseen, err := e.foresee(c, e.operation, &would); !foreseen {
		return e, err
	}
	after := "what the tier or the rule says"
	if len(would.After) > 0 && string(would.After) != "null" {
		if below, err := decoded[policy.Override](would.After); err == nil {
			after = overrideWords(below) + ", as the policy file says"
		}
	}
	e.Rows = []effectRow{{"Holds", overrideWords(o), after}, {"Until", untilWords(o.Until), "now"}}
	e.said = fmt.Sprintf("Ended the override of %s for %s.", o.Rule, printable(e.Whom))
	e.undo = func() ([]operation, error) {
		return []operation{{method: "POST", path: "/v1/overrides", body: withoutBy(found.Document)}}, nil
	}
	return e, nil
}

// withoutBy is a document that whoever puts it back signs.
func withoutBy(data json.RawMessage) any {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return []byte(data)
	}
	fields = maps.Clone(fields)
	delete(fields, "by")
	return fields
}
