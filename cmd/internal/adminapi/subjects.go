package adminapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// subjectState is what a rule has counted for a subject.
type subjectState struct {
	Rule    string            `json:"rule"`
	Source  string            `json:"source"` // of the rule
	Key     map[string]string `json:"key"`
	Shown   string            `json:"shown,omitempty"` // in place of Key, of a subject that was named by its ID
	Blocked bool              `json:"blocked"`
	// BlockedUntil is left out if the block is for good.
	BlockedUntil *time.Time `json:"blocked_until,omitempty"`
	// Override is the one that holds for the subject.
	Override *overrideState `json:"override,omitempty"`
	// Enforced says of a rule with a share whether it refuses this subject.
	Enforced string       `json:"enforced,omitempty"`
	Limits   []limitState `json:"limits"`
}

type overrideState struct {
	ID       string           `json:"id"`
	Source   string           `json:"source"`
	Document *policy.Override `json:"document"`
}

func stateOfOverride(o *policy.Override) *overrideState {
	return &overrideState{control.OverrideID(o.Rule, o.Key), o.Source, o}
}

// limitState is how full one limit is.
type limitState struct {
	Name      string `json:"name"` // as clients are told
	Limit     string `json:"limit,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	From      string `json:"from"` // "rule", "tier:NAME", "override" or "block"
	Source    string `json:"source"`
	Capacity  int64  `json:"capacity"`
	Used      int64  `json:"used"` // above the capacity, where the key owes
	Remaining int64  `json:"remaining"`
	// FullAt is when nothing is used any more.
	FullAt *time.Time `json:"full_at,omitempty"`
	Shadow bool       `json:"shadow"`
}

func stateOf(r *policy.Result) limitState {
	s := limitState{Name: r.Name, From: r.From, Source: r.Source, Shadow: r.Shadow, Remaining: r.Remaining}
	if s.Name == "" {
		s.Name = r.Rule
	}
	if r.Plan == nil {
		return s
	}
	s.Limit, s.Algorithm = r.Plan.String(), r.Plan.AlgorithmName()
	s.Capacity, s.Used = r.Plan.Capacity, r.Plan.Capacity-r.Remaining+r.Owed
	if r.ResetAfter > 0 && r.Now > 0 {
		full := time.UnixMicro(r.Now).Add(r.ResetAfter).UTC()
		s.FullAt = &full
	}
	return s
}

// state looks at a subject.
func (a *API) state(ctx context.Context, s *found) (subjectState, error) {
	out := subjectState{Rule: s.rule.Name, Source: s.rule.Source, Key: s.key, Shown: s.shown, Enforced: s.Enforced(), Limits: []limitState{}}
	if out.Key == nil {
		out.Key = map[string]string{}
	}
	if until, yes := s.Blocked(); yes {
		out.block(until)
	}
	if o, found := s.Override(); found {
		out.Override = stateOfOverride(&o)
		if o.Block {
			until, _ := policy.ParseUntil(o.Until) // the zero time is never, and it has been read before
			out.block(until)
		}
	}
	results, err := s.Peek(ctx)
	for i := range results {
		out.Limits = append(out.Limits, stateOf(&results[i]))
	}
	return out, err
}

// block says that a subject is blocked until a time, or for good if that is zero.
func (s *subjectState) block(until time.Time) {
	s.Blocked = true
	if !until.IsZero() {
		until = until.UTC()
		s.BlockedUntil = &until
	}
}

// unblock says that a subject is not blocked. What holds in place of an override is not foreseen.
func (s *subjectState) unblock() {
	s.Blocked, s.BlockedUntil = false, nil
	if s.Override != nil && s.Override.Document.Block {
		s.Override = nil
	}
}

// limitsOfSubject is what all rules have counted for a subject.
type limitsOfSubject struct {
	Key   map[string]string `json:"key"`
	Rules []subjectState    `json:"rules"`
}

// subjects tells the limits of a subject, or, if none is named, who is in which tier.
func (a *API) subjects(c *call) (any, error) {
	q, err := c.query("rule", "key.", "id", "limit", "cursor")
	if err != nil {
		return nil, err
	}
	if id, given := q.values["id"]; given {
		return a.subjectByID(c, q, id)
	}
	name, oneRule := q.values["rule"]
	if !oneRule && len(q.key) == 0 {
		return a.list(c, control.Subjects, q)
	}
	doc := a.Policy.Now().Document
	out := limitsOfSubject{q.key, []subjectState{}}
	for i := range doc.Rules {
		r := &doc.Rules[i]
		key, counts := q.key, r.Name == name
		if !oneRule {
			key, counts = partsOf(r, q.key)
		}
		if !counts {
			continue
		}
		s, err := a.Engine.Subject(r.Name, key)
		if err != nil {
			return nil, badParameter("key", "%s", plain(err))
		}
		state, err := a.state(c.Context(), &found{Subject: s, rule: r, key: key})
		if err != nil {
			return nil, err
		}
		out.Rules = append(out.Rules, state)
	}
	switch {
	case len(out.Rules) > 0:
		return out, nil
	case oneRule:
		return nil, noRule(name)
	}
	parts := strings.Join(slices.Sorted(maps.Keys(q.key)), ", ")
	return nil, problemf(http.StatusNotFound, "no rule counts by %s alone: its key may have more parts, see /v1/policy", parts)
}

func noRule(name string) *problem {
	return problemf(http.StatusNotFound, "there is no rule %q", name)
}

// partsOf returns the parts of a subject that a rule counts by, if it does and all of them are
// given.
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

// plain is an error without the name of the package.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "policy: ") }

// target is a subject: the rule and the key, or an ID.
type target struct {
	Rule   string            `json:"rule"`
	Key    map[string]string `json:"key"`
	ID     string            `json:"id"`
	Reason string            `json:"reason"`
}

// found is the subject that is meant.
type found struct {
	*policy.Subject
	rule *policy.Rule
	key  map[string]string // its values; nil if the caller is not to know them
	id   string            // by which it was named, if it was
	// shown is what people are to see of it, if it was named by an ID.
	shown string
}

type refundRequest struct {
	target
	Units int64 `json:"units"`
}

type blockRequest struct {
	target
	Until string `json:"until"`
	// Everywhere blocks it under every rule that counts by its key.
	Everywhere bool `json:"everywhere"`
}

// changed is what a change of a subject has made of it, or would make of it if dry.
type changed struct {
	DryRun bool         `json:"dry_run"`
	Before subjectState `json:"before"`
	After  subjectState `json:"after"`
}

func (a *API) reset(c *call) (any, error) {
	t, err := decode[target](c)
	if err != nil {
		return nil, err
	}
	return a.change(c, t, subjectChange{
		apply: a.recorded(c, "reset", t.Reason, nil, func(s *found) error { return s.Reset(c.Context()) }),
		foresee: func(s *subjectState) {
			for i := range s.Limits {
				s.Limits[i].giveBack(s.Limits[i].Used)
			}
		},
	})
}

func (a *API) refund(c *call) (any, error) {
	r, err := decode[refundRequest](c)
	switch {
	case err != nil:
		return nil, err
	case r.Units < 1 || r.Units > maxUnits:
		return nil, badField("/units", "write a number from 1 to %d", int64(maxUnits))
	}
	do := func(s *found) error { _, err := s.Refund(c.Context(), r.Units); return err }
	apply := a.recorded(c, "refund", r.Reason, map[string]any{"units": r.Units}, do)
	return a.change(c, r.target, subjectChange{
		apply: func(s *found, dry bool) error {
			if s.InFlight() {
				return badField("/rule", "it counts requests in flight, which end by themselves: reset the subject to free all places")
			}
			if s.Queues() {
				return badField("/rule", "it is a queue, whose turns belong to the requests that wait: reset the subject to empty it")
			}
			return apply(s, dry)
		},
		foresee: func(s *subjectState) {
			for i := range s.Limits {
				s.Limits[i].giveBack(r.Units)
			}
		},
	})
}

// giveBack is what giving units back makes of a limit. While something is used, when that ends is
// at the latest when it would have.
func (s *limitState) giveBack(units int64) {
	s.Used = max(s.Used-units, 0)
	s.Remaining = max(s.Capacity-s.Used, 0)
	if s.Used == 0 {
		s.FullAt = nil
	}
}

// subjectChange is a change of a subject: apply makes it, and if dry only says what is wrong with
// it, and foresee says what would come of it.
type subjectChange struct {
	apply   func(s *found, dry bool) error
	foresee func(*subjectState)
}

// change changes a subject, or says what would come of it.
func (a *API) change(c *call, t target, change subjectChange) (any, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	out := changed{}
	if out.DryRun, err = q.boolean("dry_run"); err != nil {
		return nil, err
	}
	s, err := a.find(c, t)
	if err != nil {
		return nil, err
	}
	if out.Before, err = a.state(c.Context(), s); err != nil {
		return nil, err
	}
	if err := change.apply(s, out.DryRun); err != nil {
		return nil, err
	}
	if out.DryRun {
		out.After = out.Before
		out.After.Limits = slices.Clone(out.Before.Limits)
		change.foresee(&out.After)
		return out, nil
	}
	if s, err = a.find(c, t); err != nil { // the policy may be another now
		return nil, err
	}
	out.After, err = a.state(c.Context(), s)
	return out, err
}

// find returns the subject that is meant.
func (a *API) find(c *call, t target) (*found, error) {
	switch {
	case t.ID != "" && (t.Rule != "" || t.Key != nil):
		return nil, badField("/id", "write the ID, or a rule and a key, and not both")
	case t.ID != "":
		s, err := a.findByID(c, t.ID)
		if err != nil {
			return nil, badField("/id", "%s", plain(err))
		}
		return s, nil
	case t.Rule == "":
		return nil, badField("/rule", "write the name of a rule")
	}
	rule := a.ruleOf(t.Rule)
	if rule == nil {
		return nil, badField("/rule", "there is no rule %q", t.Rule)
	}
	s, err := a.Engine.Subject(t.Rule, t.Key)
	if err != nil {
		return nil, badField("/key", "%s", plain(err))
	}
	return &found{Subject: s, rule: rule, key: t.Key}, nil
}

// ruleOf returns a rule as it is written, or nil.
func (a *API) ruleOf(name string) *policy.Rule {
	rules := a.Policy.Now().Document.Rules
	if i := slices.IndexFunc(rules, func(r policy.Rule) bool { return r.Name == name }); i >= 0 {
		return &rules[i]
	}
	return nil
}

// errNoID is what is said of an ID that no view has.
var errNoID = errors.New("no subject of this ID was among the top ones of the last hour: name it by its rule and key")

// findByID returns the subject that an ID of a view names.
func (a *API) findByID(c *call, id string) (*found, error) {
	if a.Find == nil {
		return nil, errNoID
	}
	key, known := a.Find(id)
	if !known {
		return nil, errNoID
	}
	s, err := a.Engine.SubjectOf(key)
	if err != nil {
		return nil, err
	}
	rule := a.ruleOf(s.Rule())
	if rule == nil {
		return nil, errNoID
	}
	return &found{Subject: s, rule: rule, key: a.valuesFor(c, key), id: id, shown: s.Shown()}, nil
}

// subjectByID tells the limits of the subject that an ID names.
func (a *API) subjectByID(c *call, q query, id string) (any, error) {
	if len(q.values) > 1 || len(q.key) > 0 {
		return nil, badParameter("id", "write the ID, or a rule and a key, and not both")
	}
	s, err := a.findByID(c, id)
	if err != nil {
		return nil, problemf(http.StatusNotFound, "%s", plain(err))
	}
	state, err := a.state(c.Context(), s)
	if o := state.Override; o != nil {
		o.Document, _ = a.veilFor(c).override(o.Document)
	}
	return limitsOfSubject{state.Key, []subjectState{state}}, err
}

// recorded makes a change of what is no change of the database, which leaves a line in the audit
// log of that. Without one the log says it, in which values of keys have no place: they may be
// secrets.
func (a *API) recorded(c *call, action, reason string, more map[string]any, do func(*found) error) func(*found, bool) error {
	return func(s *found, dry bool) error {
		switch {
		case dry:
			return nil
		case a.Policy.Database != nil:
			return a.Policy.Record(c.Context(), entry(c, action, reason, s, more), func() error { return do(s) })
		}
		if err := do(s); err != nil {
			return err
		}
		a.Logger.Info("admin API changed a subject", "action", action, "actor", c.actor, "rule", s.rule.Name, "reason", reason)
		return nil
	}
}

// entry has the key of the subject, or what people are to see of it where its rule does not show it
// whole and the caller did not know it.
func entry(c *call, action, reason string, s *found, more map[string]any) source.Entry {
	after := map[string]any{"key": s.key}
	if s.key == nil && s.shown != "" {
		after = map[string]any{"shown": s.shown}
	}
	maps.Copy(after, more)
	if reason != "" {
		after["reason"] = reason
	}
	return source.Entry{Actor: c.actor, Action: action, Kind: "subject", Target: s.rule.Name, After: source.Row(control.JSON(after))}
}

// maxUnits is more than any limit has.
const maxUnits = 1 << 50
