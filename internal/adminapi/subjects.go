package adminapi

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// subjectState is what a rule has counted for a subject.
type subjectState struct {
	Rule    string            `json:"rule"`
	Source  string            `json:"source"` // of the rule
	Key     map[string]string `json:"key"`
	Blocked bool              `json:"blocked"`
	// BlockedUntil is left out if the block is for good.
	BlockedUntil *time.Time `json:"blocked_until,omitempty"`
	// Override is the one that holds for the subject.
	Override *overrideState `json:"override,omitempty"`
	Limits   []limitState   `json:"limits"`
}

type overrideState struct {
	ID       string           `json:"id"`
	Source   string           `json:"source"`
	Document *policy.Override `json:"document"`
}

func stateOfOverride(o *policy.Override) *overrideState {
	return &overrideState{OverrideID(o.Rule, o.Key), o.Source, o}
}

// limitState is how full one limit is.
type limitState struct {
	Name      string `json:"name"` // as clients are told
	Limit     string `json:"limit,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	From      string `json:"from"` // "rule", "tier:NAME", "override" or "block"
	Source    string `json:"source"`
	Capacity  int64  `json:"capacity"`
	Used      int64  `json:"used"`
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
	s.Limit, s.Algorithm = r.Plan.Limit.String(), r.Plan.Limit.Algorithm.String()
	s.Capacity, s.Used = r.Plan.Capacity, r.Plan.Capacity-r.Remaining
	if r.ResetAfter > 0 && r.Now > 0 {
		full := time.UnixMicro(r.Now).Add(r.ResetAfter).UTC()
		s.FullAt = &full
	}
	return s
}

// state looks at a subject.
func (a *api) state(ctx context.Context, rule *policy.Rule, key map[string]string, s *policy.Subject) (subjectState, error) {
	out := subjectState{Rule: rule.Name, Source: rule.Source, Key: key, Limits: []limitState{}}
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
func (a *api) subjects(c *call) (any, error) {
	q, err := c.query("rule", "key.", "limit", "cursor")
	if err != nil {
		return nil, err
	}
	name, oneRule := q.values["rule"]
	if !oneRule && len(q.key) == 0 {
		return a.list(Subjects, q)
	}
	doc := a.Current().Document
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
		state, err := a.state(c.Context(), r, key, s)
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

// target is the subject of a request that changes one.
type target struct {
	Rule   string            `json:"rule"`
	Key    map[string]string `json:"key"`
	Reason string            `json:"reason"`
}

type refundRequest struct {
	target
	Units int64 `json:"units"`
}

type blockRequest struct {
	target
	Until string `json:"until"`
}

// changed is what a change of a subject has made of it, or would make of it if dry.
type changed struct {
	DryRun bool         `json:"dry_run"`
	Before subjectState `json:"before"`
	After  subjectState `json:"after"`
}

func (a *api) reset(c *call) (any, error) {
	t, err := decode[target](c)
	if err != nil {
		return nil, err
	}
	return a.change(c, t, subjectChange{
		apply: a.recorded(c, "reset", t, nil, func(s *policy.Subject) error { return s.Reset(c.Context()) }),
		foresee: func(s *subjectState) {
			for i := range s.Limits {
				s.Limits[i].giveBack(s.Limits[i].Used)
			}
		},
	})
}

func (a *api) refund(c *call) (any, error) {
	r, err := decode[refundRequest](c)
	switch {
	case err != nil:
		return nil, err
	case r.Units < 1 || r.Units > maxUnits:
		return nil, badField("/units", "write a number from 1 to %d", int64(maxUnits))
	}
	do := func(s *policy.Subject) error { _, err := s.Refund(c.Context(), r.Units); return err }
	return a.change(c, r.target, subjectChange{
		apply: a.recorded(c, "refund", r.target, map[string]any{"units": r.Units}, do),
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
	s.Remaining = s.Capacity - s.Used
	if s.Used == 0 {
		s.FullAt = nil
	}
}

// subjectChange is a change of a subject: apply makes it, and if dry only says what is wrong with
// it, and foresee says what would come of it.
type subjectChange struct {
	apply   func(s *policy.Subject, dry bool) error
	foresee func(*subjectState)
}

// change changes a subject, or says what would come of it.
func (a *api) change(c *call, t target, change subjectChange) (any, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	out := changed{}
	if out.DryRun, err = q.boolean("dry_run"); err != nil {
		return nil, err
	}
	s, state, err := a.look(c, t)
	if err != nil {
		return nil, err
	}
	if err := change.apply(s, out.DryRun); err != nil {
		return nil, err
	}
	out.Before = state
	if out.DryRun {
		out.After = state
		out.After.Limits = slices.Clone(state.Limits)
		change.foresee(&out.After)
		return out, nil
	}
	_, out.After, err = a.look(c, t)
	return out, err
}

// look returns the subject that is meant, and its state.
func (a *api) look(c *call, t target) (*policy.Subject, subjectState, error) {
	rule, s, err := a.find(t)
	if err != nil {
		return nil, subjectState{}, err
	}
	state, err := a.state(c.Context(), rule, t.Key, s)
	return s, state, err
}

// find returns the subject that is meant, and its rule.
func (a *api) find(t target) (*policy.Rule, *policy.Subject, error) {
	if t.Rule == "" {
		return nil, nil, badField("/rule", "write the name of a rule")
	}
	doc := a.Current().Document
	i := slices.IndexFunc(doc.Rules, func(r policy.Rule) bool { return r.Name == t.Rule })
	if i < 0 {
		return nil, nil, badField("/rule", "there is no rule %q", t.Rule)
	}
	s, err := a.Engine.Subject(t.Rule, t.Key)
	if err != nil {
		return nil, nil, badField("/key", "%s", plain(err))
	}
	return &doc.Rules[i], s, nil
}

// recorded makes a change of what is no change of the database, which leaves a line in the audit
// log of that. Without one the log says it, in which values of keys have no place: they may be
// secrets.
func (a *api) recorded(c *call, action string, t target, more map[string]any, do func(*policy.Subject) error) func(*policy.Subject, bool) error {
	return func(s *policy.Subject, dry bool) error {
		switch {
		case dry:
			return nil
		case a.Database != nil:
			return a.Database.Record(c.Context(), entry(c, action, t, more), func() error { return do(s) })
		}
		if err := do(s); err != nil {
			return err
		}
		a.Logger.Info("admin API changed a subject", "action", action, "actor", c.actor, "rule", t.Rule, "reason", t.Reason)
		return nil
	}
}

func entry(c *call, action string, t target, more map[string]any) Entry {
	after := map[string]any{"key": t.Key}
	maps.Copy(after, more)
	if t.Reason != "" {
		after["reason"] = t.Reason
	}
	return Entry{Actor: c.actor, Action: action, Kind: "subject", Target: t.Rule, After: encode(after)}
}

// maxUnits is more than any limit has.
const maxUnits = 1 << 50
