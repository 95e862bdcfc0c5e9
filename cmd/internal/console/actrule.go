package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/sluicehq/sluice/telemetry"
)

func lookShadow(c *call, f url.Values) (*effect, error) { return lookState(c, f, true) }

func lookEnforce(c *call, f url.Values) (*effect, error) { return lookState(c, f, false) }

// lookState makes a rule a shadow, or enforces it.
func lookState(c *call, f url.Values, shadow bool) (*effect, error) {
	p, err := c.policyInForce()
	if err != nil {
		return nil, err
	}
	rule, err := p.rule(f.Get("rule"))
	if err != nil {
		return nil, err
	}
	e := &effect{Back: rulePage(rule.Name), Hidden: map[string]string{"rule": rule.Name}, Verb: "Enforce it", Title: "Enforce the rule " + rule.Name}
	if shadow {
		e.Verb, e.Title = "Make it a shadow", "Make a shadow of the rule "+rule.Name
	}
	own, err := c.ruleItem(rule.Name)
	if err != nil {
		return nil, err
	}
	before := rule.JSON // of the file, with what tiers of the database have put into it
	if own != nil {
		before = own.Document
	}
	after, err := withState(before, shadow)
	if err != nil {
		return nil, err
	}
	e.Rows = []effectRow{{"The rule", stateOf(before).Words(), stateOf(after).Words()}}
	e.Notes = append(e.Notes, hourWords(c.s.View().Rule(rule.Name), shadow))
	if own == nil || own.Source != "database" {
		e.How = "This rule is in the policy file, which this page does not write. Change this there; the file is read again when it changes."
		was, err := yamlOf("rules", before)
		if err != nil {
			return nil, err
		}
		is, err := yamlOf("rules", after)
		if err != nil {
			return nil, err
		}
		e.Diff, e.Paste = diffLines(was, is), is
		return e, nil
	}
	etag := f.Get("etag")
	if etag == "" {
		etag = own.ETag
	}
	e.Hidden["etag"] = etag
	e.operation = operation{method: "PUT", path: "/v1/rules/" + url.PathEscape(rule.Name), match: etag, body: []byte(after)}
	var would difference
	if foreseen, err := e.foresee(c, e.operation, &would); !foreseen {
		return e, err
	}
	e.Warnings = append(e.Warnings, would.Warnings...)
	e.said = fmt.Sprintf("The rule %s is %s now.", rule.Name, stateOf(after).Words())
	e.undo = func() ([]operation, error) {
		now, err := c.ruleItem(rule.Name)
		if err != nil || now == nil {
			return nil, err
		}
		return []operation{{method: "PUT", path: "/v1/rules/" + url.PathEscape(rule.Name), match: now.ETag, body: []byte(before)}}, nil
	}
	return e, nil
}

// ruleItem returns a rule as the file or the database has it, or nil.
func (c *call) ruleItem(name string) (*item, error) {
	return c.item("/v1/rules", name)
}

// ruleState is whether a rule refuses.
type ruleState struct {
	Shadow  bool   `json:"shadow"`
	Enforce string `json:"enforce"` // the share of subjects for which it does, as in "10%"
	Exempt  bool   `json:"exempt"`
	Block   bool   `json:"block"`
	All     bool   `json:"-"` // the whole policy is a shadow, whatever the rule says
}

func stateOf(rule json.RawMessage) (s ruleState) {
	_ = json.Unmarshal(rule, &s) // it has been read before
	return s
}

// Name is one word for filters: enforced, shadow, partly, exempt or block.
func (s ruleState) Name() string {
	switch {
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

// Words is what a badge says.
func (s ruleState) Words() string {
	switch s.Name() {
	case "partly":
		return s.Enforce + " enforced"
	case "block":
		return "enforced"
	}
	return s.Name()
}

// Badge is how it looks.
func (s ruleState) Badge() string {
	switch s.Name() {
	case "shadow", "partly":
		return "badge-warn"
	case "exempt":
		return "badge-quiet"
	}
	return "badge-good"
}

// withState returns a rule that is a shadow, or enforced for all.
func withState(rule json.RawMessage, shadow bool) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(rule, &fields); err != nil {
		return nil, err
	}
	fields = maps.Clone(fields)
	delete(fields, "shadow")
	delete(fields, "enforce")
	if shadow {
		fields["shadow"] = json.RawMessage("true")
	}
	return json.Marshal(fields)
}

// hourWords is what the other state would have meant in the last hour.
func hourWords(r *telemetry.Rule, shadow bool) string {
	if r == nil {
		return "Nothing has been seen of it yet, so nobody knows what that would have meant."
	}
	n := sumOf(r.Recent)
	refused, outcome := n[telemetry.Deny], "Requests that it refused in the last hour and that would have passed"
	if !shadow {
		refused, outcome = n[telemetry.WouldDeny], "Requests in the last hour that it would have refused"
	}
	if n.Total() == 0 {
		return "No request met it in the last hour."
	}
	text := fmt.Sprintf("%s: %s of %s, %s/s", outcome, humanize.Comma(int64(refused)), humanize.Comma(int64(n.Total())), rate(float64(refused)/time.Hour.Seconds()))
	if refused > 0 && r.Refused[telemetry.Hour] > 0 {
		text += ", of " + several(int64(r.Refused[telemetry.Hour]), "subject")
	}
	return text + "."
}

// sumOf adds counts up.
func sumOf(all []telemetry.Counts) (n telemetry.Counts) {
	for i := range all {
		n.Add(&all[i])
	}
	return n
}

// dayOf are the counts of the last 24 hours.
func dayOf(s *telemetry.Series) []telemetry.Counts {
	steps := int(24*time.Hour/telemetry.LongStep) + 1
	return s.Days[max(0, len(s.Days)-steps):]
}

func rulePage(name string) string { return "/rules/" + url.PathEscape(name) }
