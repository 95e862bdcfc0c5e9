package adminapi

import (
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// block blocks a subject until a time: on all instances by an override if there is a database,
// else on this one.
func (a *API) block(c *call) (any, error) {
	r, err := decode[blockRequest](c)
	if err != nil {
		return nil, err
	}
	until, err := endOf(r.Until)
	if err != nil {
		return nil, err
	}
	if r.Everywhere {
		return a.blockEverywhere(c, &r, until)
	}
	change := subjectChange{
		foresee: func(s *subjectState) { s.block(until) },
		apply:   a.recorded(c, "block", r.Reason, nil, func(s *found) error { return conflicts(s.Block(until)) }),
	}
	if a.Policy.Database != nil {
		o := &policy.Override{Block: true, Until: r.Until, Reason: r.Reason, By: c.actor, Source: control.FromDatabase}
		change.foresee = func(s *subjectState) { s.block(until); s.Override = stateOfOverride(o) }
		change.apply = func(s *found, dry bool) error { return a.putBlock(c, s, o, dry) }
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

// putBlock blocks a subject by an override of its own, which may write its key in another way. One
// that has another purpose stays.
func (a *API) putBlock(c *call, s *found, o *policy.Override, dry bool) error {
	if hashed := s.Hashed(); len(hashed) > 0 {
		return problemf(http.StatusConflict, "the %s of this subject is too long to be kept, and no override can name it: block it by a rule", hashed[0])
	}
	if o.Rule, o.Key = s.rule.Name, s.key; s.id != "" {
		o.Key = s.Values() // an override has to say it
	}
	if part, all := anyValue(o.Key); all {
		return badField("/key/"+escaped(part), "an override reads \"*\" as every value, and would block others: block this one by a rule")
	}
	if held, found := s.Override(); found && a.alone(s, &held) {
		o.Key = held.Key
	}
	if _, _, err := a.examineOverride(o); err != nil {
		return err
	}
	id := control.OverrideID(o.Rule, o.Key)
	old, exists := a.lists.Find(a.Policy.Now(), control.Overrides, id)
	if exists && !old.Document.(*policy.Override).Block {
		return problemf(http.StatusConflict, "this subject has an override of its own, which a block would replace for good: replace the override %s", id)
	}
	put, err := a.Policy.Put(c.Context(), c.actor, control.Item{ID: id, Document: o}, source.Match(old.Version), dry)
	if err == nil && !dry {
		a.logChange(c, control.Overrides, false, put.Version)
	}
	return raced(err)
}

// raced is what is said if somebody else was faster.
func raced(err error) error {
	if conflicted(err) {
		return problemf(http.StatusConflict, "somebody else has changed the override of this subject just now: look, and try again")
	}
	return err
}

func (a *API) unblock(c *call) (any, error) {
	t, err := decode[target](c)
	if err != nil {
		return nil, err
	}
	change := subjectChange{foresee: (*subjectState).unblock}
	change.apply = func(s *found, dry bool) error {
		o, blocked := s.Override()
		switch {
		case !blocked || !o.Block:
			return a.recorded(c, "unblock", t.Reason, nil, func(s *found) error { s.Unblock(); return nil })(s, dry)
		case a.Policy.Database == nil:
			return problemf(http.StatusConflict, "an override of the policy file blocks this subject: remove it there")
		}
		return a.deleteBlock(c, s, &o, dry)
	}
	return a.change(c, t, change)
}

// deleteBlock removes the override by which a subject is blocked, if that is of this subject
// alone.
func (a *API) deleteBlock(c *call, s *found, o *policy.Override, dry bool) error {
	id := control.OverrideID(o.Rule, o.Key)
	own, found := a.lists.Find(a.Policy.Now(), control.Overrides, id)
	if !found || own.Version == 0 || !a.alone(s, o) {
		return problemf(http.StatusConflict, "the override %s blocks this subject, with others or by the policy file: change that, or give the subject an override of its own", id)
	}
	err := a.Policy.Delete(c.Context(), c.actor, control.Overrides, id, source.Match(own.Version), dry)
	if err == nil && !dry {
		a.logChange(c, control.Overrides, true, 0)
	}
	return raced(err)
}

// alone reports whether an override that holds for a subject holds for no other, however it writes
// the key.
func (a *API) alone(s *found, o *policy.Override) bool {
	if _, all := anyValue(o.Key); all {
		return false
	}
	of, err := a.Engine.Subject(o.Rule, o.Key)
	return err == nil && of.Key() == s.Key()
}

// anyValue returns the part of an override's key that stands for every value.
func anyValue(key map[string]string) (part string, found bool) {
	for part, v := range key {
		if v == "*" {
			return part, true
		}
	}
	return "", false
}

// endOf reads the field until, which has to say a time that is to come.
func endOf(text string) (time.Time, error) {
	until, err := policy.ParseUntil(text)
	switch {
	case text == "":
		return until, badField("/until", "write a date, which holds to its end in UTC, or a time")
	case err != nil:
		return until, badField("/until", "%s", plain(err))
	case !until.After(time.Now()):
		return until, badField("/until", "it has passed: %s", until.UTC().Format(time.RFC3339))
	}
	return until, nil
}
