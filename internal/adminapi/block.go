package adminapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// block blocks a subject until a time: on all instances by an override if there is a database,
// else on this one.
func (a *api) block(c *call) (any, error) {
	r, err := decode[blockRequest](c)
	if err != nil {
		return nil, err
	}
	until, err := policy.ParseUntil(r.Until)
	switch {
	case r.Until == "":
		return nil, badField("/until", "write a date, which holds to its end in UTC, or a time")
	case err != nil:
		return nil, badField("/until", "%s", plain(err))
	case !until.After(time.Now()):
		return nil, badField("/until", "it has passed: %s", until.UTC().Format(time.RFC3339))
	}
	change := subjectChange{foresee: func(s *subjectState) { s.block(until) }}
	if a.Database == nil {
		change.apply = a.recorded(c, "block", r.target, nil, func(s *policy.Subject) error { return conflicts(s.Block(until)) })
	} else {
		o := &policy.Override{Rule: r.Rule, Key: r.Key, Block: true, Until: r.Until, Reason: r.Reason, By: c.actor}
		change.apply = func(_ *policy.Subject, dry bool) error { return a.putBlock(c, o, dry) }
	}
	return a.change(c, r.target, change)
}

// conflicts makes a problem of what the engine says against a block.
func conflicts(err error) error {
	if err == nil {
		return nil
	}
	return problemf(http.StatusConflict, "%s", plain(err))
}

// putBlock blocks a subject by an override of its own. One that has another purpose stays.
func (a *api) putBlock(c *call, o *policy.Override, dry bool) error {
	if _, _, err := a.examineOverride(o); err != nil {
		return err
	}
	id := OverrideID(o.Rule, o.Key)
	old, exists := a.lists.find(a.Current(), Overrides, id)
	if exists && !old.Document.(*policy.Override).Block {
		return problemf(http.StatusConflict, "this subject has an override of its own, which a block would replace for good: replace the override %s", id)
	}
	_, err := a.Database.Put(c.Context(), c.actor, Overrides, Item{ID: id, Document: o}, old.Version, dry)
	return raced(err)
}

// raced is what is said if somebody else was faster.
func raced(err error) error {
	if errors.Is(err, ErrConflict) {
		return problemf(http.StatusConflict, "somebody else has changed the override of this subject just now: look, and try again")
	}
	return err
}

func (a *api) unblock(c *call) (any, error) {
	t, err := decode[target](c)
	if err != nil {
		return nil, err
	}
	change := subjectChange{foresee: func(s *subjectState) { s.Blocked, s.BlockedUntil, s.Override = false, nil, nil }}
	change.apply = func(s *policy.Subject, dry bool) error {
		o, blocked := s.Override()
		switch {
		case !blocked || !o.Block:
			return a.recorded(c, "unblock", t, nil, func(s *policy.Subject) error { s.Unblock(); return nil })(s, dry)
		case a.Database == nil:
			return problemf(http.StatusConflict, "an override of the policy file blocks this subject: remove it there")
		}
		return a.deleteBlock(c, t, &o, dry)
	}
	return a.change(c, t, change)
}

// deleteBlock removes the override by which a subject is blocked, if that is of this subject
// alone.
func (a *api) deleteBlock(c *call, t target, o *policy.Override, dry bool) error {
	id, by := OverrideID(t.Rule, t.Key), OverrideID(o.Rule, o.Key)
	own, found := a.lists.find(a.Current(), Overrides, id)
	if !found || own.Version == 0 || id != by {
		return problemf(http.StatusConflict, "the override %s blocks this subject, with others or by the policy file: change that, or give the subject an override of its own", by)
	}
	return raced(a.Database.Delete(c.Context(), c.actor, Overrides, id, own.Version, dry))
}
