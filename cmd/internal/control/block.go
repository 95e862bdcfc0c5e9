package control

import (
	"context"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// BlockRequest blocks a subject until a time.
type BlockRequest struct {
	Target
	Until string `json:"until"`
	// Everywhere blocks the subject under every rule that counts by its key.
	Everywhere bool `json:"everywhere"`
}

// Block blocks a subject. With a database, it writes an override, which applies to all instances; otherwise the
// block applies only to this instance.
func (c *Control) Block(ctx context.Context, who Caller, r BlockRequest, dry bool) (*SubjectChange, error) {
	if err := who.Needs(source.Operator); err != nil {
		return nil, err
	}
	until, err := endOf(r.Until)
	if err != nil {
		return nil, err
	}
	if r.Everywhere {
		return c.blockEverywhere(ctx, who, &r, until, dry)
	}
	act := subjectAct{
		foresee: func(s *SubjectState) { s.block(until) },
		apply:   c.recorded(ctx, who, "block", r.Reason, nil, func(s *found) error { return conflicts(s.Block(until)) }),
	}
	var put *BlockedRule
	if c.policy.database != nil {
		o := &policy.Override{Block: true, Until: r.Until, Reason: r.Reason, By: who.Name, Source: source.FromDatabase}
		act.foresee = func(s *SubjectState) { s.block(until); s.Override = stateOfOverride(o) }
		act.apply = func(s *found, dry bool) (err error) { put, err = c.putBlock(ctx, who, s, o, dry); return err }
	}
	out, err := c.change(ctx, who, r.Target, dry, act)
	if err != nil {
		return nil, err
	}
	out.Put = put
	return out, nil
}

// conflicts converts an error of the engine to a problem with the status 409.
func conflicts(err error) error {
	if err == nil {
		return nil
	}
	return Problemf(http.StatusConflict, "%s", plain(err))
}

// putBlock blocks a subject by an override for this subject alone. If such an override exists, the block gets its key
// as it is written there, because one key can be written in several ways. A block is replaced; if the override is not a
// block, putBlock returns an error.
func (c *Control) putBlock(ctx context.Context, who Caller, s *found, o *policy.Override, dry bool) (*BlockedRule, error) {
	if hashed := s.Hashed(); len(hashed) > 0 {
		return nil, Problemf(http.StatusConflict, "the %s of this subject is too long for an override: block it by a rule", hashed[0])
	}
	if o.Rule, o.Key = s.rule.Name, s.key; s.id != "" {
		o.Key = s.Values() // an override names its subject by values, not by an ID
	}
	if part, all := anyValue(o.Key); all {
		return nil, BadField(PointerTo("key", part), "in an override, \"*\" matches every value and would block other subjects: block this subject by a rule")
	}
	if held, found := s.Override(); found && c.alone(s, &held) {
		o.Key = held.Key
	}
	if _, _, err := c.examine(o); err != nil {
		return nil, err
	}
	id := source.OverrideName(o.Rule, o.Key)
	old, exists := c.policy.now().find(Overrides, id)
	if exists && !old.Document.(*policy.Override).Block {
		return nil, Problemf(http.StatusConflict, "the subject has the override %s, which a block would delete: if you mean this, replace the override", id)
	}
	blocked, err := c.writeBlocks(ctx, who, []policy.Override{*o}, dry)
	if err != nil || dry {
		return nil, err
	}
	return &blocked[0], nil
}

// writeBlocks writes blocks as overrides, in one transaction. They replace existing overrides.
func (c *Control) writeBlocks(ctx context.Context, who Caller, all []policy.Override, dry bool) ([]BlockedRule, error) {
	items, blocked := make([]item, len(all)), make([]BlockedRule, len(all))
	for i := range all {
		id := source.OverrideName(all[i].Rule, all[i].Key)
		old, _ := c.policy.now().find(Overrides, id)
		items[i] = item{ID: id, Document: &all[i], Version: old.Version}
		blocked[i] = BlockedRule{Rule: all[i].Rule, Override: id}
		if old.Version > 0 {
			blocked[i].Before = old.Document.(*policy.Override)
		}
	}
	_, err := c.policy.change(ctx, who.Name, dry, func(tx *source.Tx) (err error) {
		for i := range items {
			if items[i], err = put(tx, items[i].Document, false, source.Match(items[i].Version)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || dry {
		return blocked, raced(err)
	}
	for i := range items {
		blocked[i].ETag = items[i].ETag()
		c.logChange(who, Overrides, false, items[i].Version)
	}
	return blocked, nil
}

// raced converts a conflict with another change to a problem.
func raced(err error) error {
	if conflicted(err) {
		return Problemf(http.StatusConflict, "the override of this subject has just been changed by another request: read it again, and retry")
	}
	return err
}

// Unblock ends the block of a subject.
func (c *Control) Unblock(ctx context.Context, who Caller, t Target, dry bool) (*SubjectChange, error) {
	if err := who.Needs(source.Operator); err != nil {
		return nil, err
	}
	act := subjectAct{foresee: (*SubjectState).unblock}
	act.apply = func(s *found, dry bool) error {
		o, blocked := s.Override()
		switch {
		case !blocked || !o.Block:
			return c.recorded(ctx, who, "unblock", t.Reason, nil, func(s *found) error { s.Unblock(); return nil })(s, dry)
		case c.policy.database == nil:
			return Problemf(http.StatusConflict, "an override in the policy file blocks this subject: remove it there")
		}
		return c.deleteBlock(ctx, who, s, &o, dry)
	}
	return c.change(ctx, who, t, dry, act)
}

// deleteBlock removes the override that blocks a subject, if the override applies only to this subject.
func (c *Control) deleteBlock(ctx context.Context, who Caller, s *found, o *policy.Override, dry bool) error {
	id := source.OverrideName(o.Rule, o.Key)
	own, found := c.policy.now().find(Overrides, id)
	if !found || own.Version == 0 || !c.alone(s, o) {
		return Problemf(http.StatusConflict, "the override %s blocks this subject. It is in the policy file or covers other subjects: change it, or create an override for the subject", id)
	}
	_, _, err := c.apply(ctx, &writing{Change: Change{Dry: dry}, who: who, kind: Overrides, id: id}, source.Match(own.Version))
	if err == nil && !dry {
		c.logChange(who, Overrides, true, 0)
	}
	return raced(err)
}

// alone reports whether an override applies only to this subject. The spelling of its key may differ.
func (c *Control) alone(s *found, o *policy.Override) bool {
	of, single := c.single(o.Rule, o.Key)
	return single && of.Key() == s.Key()
}

// anyValue returns a part of an override's key that matches every value, if the key has one.
func anyValue(key map[string]string) (part string, found bool) {
	for part, v := range key {
		if v == "*" {
			return part, true
		}
	}
	return "", false
}

// endOf parses the field "until", which must be a time in the future.
func endOf(text string) (time.Time, error) {
	until, err := policy.ParseUntil(text)
	switch {
	case text == "":
		return until, BadField("/until", "write a time, or a date, which includes the whole day in UTC")
	case err != nil:
		return until, BadField("/until", "%s", plain(err))
	case !until.After(time.Now()):
		return until, BadField("/until", "this time has passed: %s", until.UTC().Format(time.RFC3339))
	}
	return until, nil
}
