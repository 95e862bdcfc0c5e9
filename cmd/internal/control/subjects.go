package control

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// SubjectState is the state of a subject under one rule.
type SubjectState struct {
	Rule   string            `json:"rule"`
	Source string            `json:"source"` // the origin of the rule
	Key    map[string]string `json:"key"`
	// Shown is the key as the rule's show_key shows it. It is set if the caller may not see the key (Key is then
	// empty), or if the request names the subject by its ID.
	Shown   string `json:"shown,omitempty"`
	Blocked bool   `json:"blocked"`
	// BlockedUntil is omitted if the block does not end.
	BlockedUntil *time.Time `json:"blocked_until,omitempty"`
	// Override is the override that applies to the subject.
	Override *OverrideState `json:"override,omitempty"`
	// Enforced reports whether a rule with a rollout percentage is enforced for this subject.
	Enforced string       `json:"enforced,omitempty"`
	Limits   []LimitState `json:"limits"`
}

// OverrideState is an override that applies to a subject.
type OverrideState struct {
	ID       string           `json:"id"`
	Source   string           `json:"source"`
	Document *policy.Override `json:"document"`
	// Alone reports whether the override applies only to this subject.
	Alone bool `json:"-"`
}

func stateOfOverride(o *policy.Override) *OverrideState {
	return &OverrideState{ID: source.OverrideName(o.Rule, o.Key), Source: o.Source, Document: o}
}

// LimitState is the state of one limit.
type LimitState struct {
	Name      string `json:"name"` // the name in response fields
	Limit     string `json:"limit,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	From      string `json:"from"` // "rule", "tier:NAME", "override" or "block"
	Source    string `json:"source"`
	// For a limit in USD, Capacity, Used and Remaining are in micro-USD, and USD has the amounts as decimal text.
	Capacity  int64    `json:"capacity"`
	Used      int64    `json:"used"` // larger than Capacity if the subject has a debt
	Remaining int64    `json:"remaining"`
	USD       *Amounts `json:"usd,omitempty"`
	Unit      string   `json:"unit,omitempty"` // "tokens" if responses report the cost in tokens
	// FullAt is the time at which the whole limit will be available again.
	FullAt *time.Time `json:"full_at,omitempty"`
	Shadow bool       `json:"shadow"`
}

// Text formats a number of the limit, as in "0.50 USD", "1200 tokens" or "12".
func (s LimitState) Text(n int64) string { return textOf(s.USD, s.Unit, n) }

func textOf(usd *Amounts, unit string, n int64) string {
	text := usd.Text(n)
	if unit != "" {
		text += " " + unit
	}
	return text
}

// Owed returns the debt of the subject.
func (s LimitState) Owed() int64 { return max(s.Used-s.Capacity, 0) }

// limitStateOf returns the state of the limit in a result.
func limitStateOf(r *policy.Result) LimitState {
	s := LimitState{Name: r.Name, From: r.From, Source: r.Source, Shadow: r.Shadow, Remaining: r.Remaining}
	if s.Name == "" {
		s.Name = r.Rule
	}
	if r.Plan == nil {
		return s
	}
	s.Limit, s.Algorithm = r.Plan.String(), r.Plan.AlgorithmName()
	l := &r.Plan.Limit
	s.Capacity, s.Used, s.Remaining = l.Value(r.Plan.Capacity), l.Value(r.Plan.Capacity-r.Remaining+r.Owed), l.Value(r.Remaining)
	s.USD = AmountsOf(l.Money > 0, s.Capacity, s.Used, s.Remaining)
	if r.Unit == policy.Tokens {
		s.Unit = r.Unit.String()
	}
	if r.ResetAfter > 0 && r.Now > 0 {
		full := time.UnixMicro(r.Now).Add(r.ResetAfter).UTC()
		s.FullAt = &full
	}
	return s
}

// state returns the state of a subject.
func (c *Control) state(ctx context.Context, s *found) (SubjectState, error) {
	out := SubjectState{Rule: s.rule.Name, Source: s.rule.Source, Key: s.key, Shown: s.shown, Enforced: s.Enforced(), Limits: []LimitState{}}
	if out.Key == nil {
		out.Key = map[string]string{}
	}
	if until, yes := s.Blocked(); yes {
		out.block(until)
	}
	if o, found := s.Override(); found {
		out.Override = stateOfOverride(&o)
		out.Override.Alone = c.alone(s, &o)
		if o.Block {
			until, _ := policy.ParseUntil(o.Until) // the override is valid; the zero time means no end
			out.block(until)
		}
	}
	results, err := s.Peek(ctx)
	for i := range results {
		out.Limits = append(out.Limits, limitStateOf(&results[i]))
	}
	return out, err
}

// block marks a subject as blocked until a time, or without an end if that time is zero.
func (s *SubjectState) block(until time.Time) {
	s.Blocked = true
	if !until.IsZero() {
		until = until.UTC()
		s.BlockedUntil = &until
	}
}

// unblock marks a subject as not blocked. It does not predict which override applies after that.
func (s *SubjectState) unblock() {
	s.Blocked, s.BlockedUntil = false, nil
	if s.Override != nil && s.Override.Document.Block {
		s.Override = nil
	}
}

// SubjectLimits has the states of a subject under one rule, or under all rules that count by its key.
type SubjectLimits struct {
	Key   map[string]string `json:"key"`
	Rules []SubjectState    `json:"rules"`
}

// Subjects returns the state of a subject under the named rule, or under all rules if rule is "". The parameter key
// maps key parts to values.
func (c *Control) Subjects(ctx context.Context, who Caller, rule string, key map[string]string) (*SubjectLimits, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	doc, v := c.policy.now().document, c.veilFor(who)
	out := &SubjectLimits{key, []SubjectState{}}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		own, counts := key, r.Name == rule
		if rule == "" {
			own, counts = partsOf(r, key)
		}
		if !counts {
			continue
		}
		s, err := c.engine.Subject(r.Name, own)
		if err != nil {
			return nil, BadParameter("key", "%s", plain(err))
		}
		f := &found{Subject: s, rule: r, key: own}
		if v != nil && v.hides(r.Name) {
			f.key, f.shown, out.Key = nil, s.Shown(), map[string]string{}
		}
		state, err := c.state(ctx, f)
		if err != nil {
			return nil, err
		}
		state.Override = v.state(state.Override)
		out.Rules = append(out.Rules, state)
	}
	switch {
	case len(out.Rules) > 0:
		return out, nil
	case rule != "":
		return nil, noRule(rule)
	}
	parts := strings.Join(slices.Sorted(maps.Keys(key)), ", ")
	return nil, Problemf(http.StatusNotFound, "no rule counts by %s alone: see /v1/policy for keys with several parts", parts)
}

func noRule(name string) *Problem {
	return Problemf(http.StatusNotFound, "unknown rule %q", name)
}

// partsOf returns the given values by which a rule counts. The result all is true if the rule counts by a key, and
// the values of all its parts except const:TEXT are given.
func partsOf(r *policy.Rule, given map[string]string) (key map[string]string, all bool) {
	key = map[string]string{}
	for _, part := range r.Key {
		v, ok := given[part]
		switch {
		case ok:
			key[part] = v
		case !strings.HasPrefix(part, "const:"):
			return nil, false
		}
	}
	return key, len(key) > 0 && !r.Exempt && !r.Block
}

// Target names a subject: by rule and key, or by ID.
type Target struct {
	Rule   string            `json:"rule"`
	Key    map[string]string `json:"key"`
	ID     string            `json:"id"`
	Reason string            `json:"reason"`
}

// found is the subject of a Target.
type found struct {
	*policy.Subject
	rule *policy.Rule
	key  map[string]string // the values of the key; nil if the caller may not see them
	id   string            // "" unless the target names the subject by its ID
	// shown is the key as the rule's show_key shows it. It is set if the caller may not see the key, or if the
	// target names the subject by its ID.
	shown string
}

// RefundRequest gives units back to a subject.
type RefundRequest struct {
	Target
	Units int64 `json:"units"` // for a rule in USD, micro-USD
	// USD is the amount as decimal text. It is an alternative to Units for a rule in USD.
	USD string `json:"usd"`
}

// units returns the units of the request.
func (r *RefundRequest) units() (int64, error) {
	if r.USD == "" {
		if r.Units < 1 || r.Units > maxUnits {
			return 0, BadField("/units", "write a number from 1 to %d", int64(maxUnits))
		}
		return r.Units, nil
	}
	micro, err := printable.ParseDecimal(r.USD)
	switch {
	case r.Units != 0:
		return 0, BadField("/usd", "write either units or usd")
	case err != nil:
		return 0, BadField("/usd", "%v", err)
	case micro < 1 || micro > maxUnits:
		return 0, BadField("/usd", "write an amount from %s to %s", printable.FormatDecimal(1), printable.FormatDecimal(maxUnits))
	}
	return micro, nil
}

// SubjectChange is the state of a subject before and after a change. In a dry run, After is a prediction.
type SubjectChange struct {
	DryRun bool         `json:"dry_run"`
	Before SubjectState `json:"before"`
	After  SubjectState `json:"after"`
	// For a block under all rules (Everywhere), Blocked has the rules under which the subject is blocked, and Open
	// has the rules under which it cannot be blocked. Both are nil for other changes.
	Blocked []BlockedRule `json:"blocked,omitzero"`
	Open    []OpenRule    `json:"open,omitzero"`
	// Put is the override that a block under one rule has written. It is nil without a database.
	Put *BlockedRule `json:"-"`
}

// Reset resets the counters of a subject under a rule.
func (c *Control) Reset(ctx context.Context, who Caller, t Target, dry bool) (*SubjectChange, error) {
	if err := who.Needs(source.Operator); err != nil {
		return nil, err
	}
	return c.change(ctx, who, t, dry, subjectAct{
		apply: c.recorded(ctx, who, "reset", t.Reason, nil, func(s *found) error { return s.Reset(ctx) }),
		foresee: func(s *SubjectState) {
			for i := range s.Limits {
				s.Limits[i].giveBack(s.Limits[i].Used)
			}
		},
	})
}

// Refund gives units back to a subject.
func (c *Control) Refund(ctx context.Context, who Caller, r RefundRequest, dry bool) (*SubjectChange, error) {
	if err := who.Needs(source.Operator); err != nil {
		return nil, err
	}
	units, err := r.units()
	if err != nil {
		return nil, err
	}
	do := func(s *found) error { _, err := s.Refund(ctx, units); return err }
	audited := map[string]any{"units": units}
	if r.USD != "" {
		audited = map[string]any{"usd": r.USD}
	}
	apply := c.recorded(ctx, who, "refund", r.Reason, audited, do)
	return c.change(ctx, who, r.Target, dry, subjectAct{
		apply: func(s *found, dry bool) error {
			if s.InFlight() {
				return BadField("/rule", "this rule counts requests in flight, which end by themselves: reset the subject to free all permits")
			}
			if s.Distinct() {
				return BadField("/rule", "this rule counts distinct values, which cannot be refunded: reset the subject to forget all")
			}
			if s.Queues() {
				return BadField("/rule", "this rule is a queue of waiting requests: reset the subject to empty the queue")
			}
			if r.USD != "" && s.rule.Cost.USD == "" {
				return BadField("/usd", "the rule has no limit in USD: write units")
			}
			return apply(s, dry)
		},
		foresee: func(s *SubjectState) {
			for i := range s.Limits {
				s.Limits[i].giveBack(units)
			}
		},
	})
}

// giveBack predicts the effect of a refund. FullAt stays as an upper bound unless no units are used.
func (s *LimitState) giveBack(units int64) {
	s.Used = max(s.Used-units, 0)
	s.Remaining = max(s.Capacity-s.Used, 0)
	s.USD = AmountsOf(s.USD != nil, s.Capacity, s.Used, s.Remaining)
	if s.Used == 0 {
		s.FullAt = nil
	}
}

// subjectAct is a change of a subject. The function apply makes the change; if dry is true, it only checks for
// errors. The function foresee changes a state as the change would.
type subjectAct struct {
	apply   func(s *found, dry bool) error
	foresee func(*SubjectState)
}

// change changes a subject. If the parameter dry is true, it only predicts the change.
func (c *Control) change(ctx context.Context, who Caller, t Target, dry bool, act subjectAct) (*SubjectChange, error) {
	s, err := c.find(who, t)
	if err != nil {
		return nil, err
	}
	out := &SubjectChange{DryRun: dry}
	if out.Before, err = c.state(ctx, s); err != nil {
		return nil, err
	}
	if err := act.apply(s, dry); err != nil {
		return nil, err
	}
	if dry {
		out.After = out.Before
		out.After.Limits = slices.Clone(out.Before.Limits)
		act.foresee(&out.After)
		return out, nil
	}
	if s, err = c.find(who, t); err != nil { // find the subject again, because the policy may have changed
		return nil, err
	}
	out.After, err = c.state(ctx, s)
	return out, err
}

// find returns the subject of a target.
func (c *Control) find(who Caller, t Target) (*found, error) {
	switch {
	case t.ID != "" && (t.Rule != "" || t.Key != nil):
		return nil, BadField("/id", "write either the ID, or a rule and a key")
	case t.ID != "":
		s, err := c.findByID(who, t.ID)
		if err != nil {
			return nil, BadField("/id", "%s", plain(err))
		}
		return s, nil
	case t.Rule == "":
		return nil, BadField("/rule", "write the name of a rule")
	}
	rule := c.ruleOf(t.Rule)
	if rule == nil {
		return nil, BadField("/rule", "unknown rule %q", t.Rule)
	}
	s, err := c.engine.Subject(t.Rule, t.Key)
	if err != nil {
		return nil, BadField("/key", "%s", plain(err))
	}
	return &found{Subject: s, rule: rule, key: t.Key}, nil
}

// ruleOf returns the rule with the given name in the document, or nil.
func (c *Control) ruleOf(name string) *policy.Rule {
	rules := c.policy.now().document.Rules
	if i := slices.IndexFunc(rules, func(r policy.Rule) bool { return r.Name == name }); i >= 0 {
		return &rules[i]
	}
	return nil
}

// errNoID is the error for an ID that telemetry does not know.
var errNoID = errors.New("no top subject of the last day has this ID: name the subject by its rule and key")

// findByID returns the subject with the given ID. It fails unless telemetry knew the subject when the latest view was
// made.
func (c *Control) findByID(who Caller, id string) (*found, error) {
	if c.telemetry == nil {
		return nil, errNoID
	}
	key, known := c.telemetry.Find(id)
	if !known {
		return nil, errNoID
	}
	s, err := c.engine.SubjectOf(key)
	if err != nil {
		return nil, err
	}
	rule := c.ruleOf(s.Rule())
	if rule == nil {
		return nil, errNoID
	}
	return &found{Subject: s, rule: rule, key: c.valuesFor(who, key), id: id, shown: s.Shown()}, nil
}

// SubjectByID returns the state of the subject with the given ID, under its rule. It fails unless telemetry knew the
// subject when the latest view was made.
func (c *Control) SubjectByID(ctx context.Context, who Caller, id string) (*SubjectLimits, error) {
	if err := who.Needs(source.Viewer); err != nil {
		return nil, err
	}
	s, err := c.findByID(who, id)
	if err != nil {
		return nil, Problemf(http.StatusNotFound, "%s", plain(err))
	}
	state, err := c.state(ctx, s)
	state.Override = c.veilFor(who).state(state.Override)
	return &SubjectLimits{state.Key, []SubjectState{state}}, err
}

// recorded returns an apply function for a change outside the database. The apply function calls do, which makes the
// change, and adds an entry to the database's audit log. Without a database, it logs the change instead, without
// values of keys, because they may be secrets.
func (c *Control) recorded(ctx context.Context, who Caller, action, reason string, more map[string]any, do func(*found) error) func(*found, bool) error {
	return func(s *found, dry bool) error {
		if dry {
			return nil
		}
		err := c.policy.record(ctx, entry(who, action, reason, s, more), func() error { return do(s) })
		if err == nil && c.policy.database == nil {
			c.logAct(who, "subject changed", "action", action, "rule", s.rule.Name, "reason", reason)
		}
		return err
	}
}

// entry returns an audit entry. The entry has the key of the subject or, if the caller may not see the key, its
// form by the rule's show_key.
func entry(who Caller, action, reason string, s *found, more map[string]any) source.Entry {
	after := map[string]any{"key": s.key}
	if s.key == nil && s.shown != "" {
		after = map[string]any{"shown": s.shown}
	}
	maps.Copy(after, more)
	if reason != "" {
		after["reason"] = reason
	}
	return source.Entry{Actor: who.Name, Action: action, Kind: "subject", Target: s.rule.Name, After: source.Row(JSON(after))}
}

// maxUnits is larger than the capacity of any limit.
const maxUnits = 1 << 50
