package adminapi

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

// blockedRule is a rule under which a subject is blocked together with others, or would be.
type blockedRule struct {
	Rule string `json:"rule"`
	// Override is the ID of the override that blocks it, and ETag that of what it says now. Both are empty
	// without a database.
	Override string `json:"override,omitempty"`
	ETag     string `json:"etag,omitempty"`
	// Before is the override that it takes the place of; null: there is none.
	Before *policy.Override `json:"before"`
}

// openRule is a rule that counts by the key, and under which the subject is not blocked.
type openRule struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// changedEverywhere is what came of a block under all rules, or would.
type changedEverywhere struct {
	changed
	Blocked []blockedRule `json:"blocked"`
	Open    []openRule    `json:"open"`
}

// blockEverywhere blocks a subject under every rule whose key has all parts of the subject's own, in one
// transaction if there is a database.
func (a *API) blockEverywhere(c *call, r *blockRequest, until time.Time) (any, error) {
	out := changedEverywhere{Blocked: []blockedRule{}, Open: []openRule{}}
	result, err := a.change(c, r.target, subjectChange{
		foresee: func(s *subjectState) { s.block(until) },
		apply: func(s *found, dry bool) error {
			all, err := a.blocksOf(s, &out)
			switch {
			case err != nil:
				return err
			case a.Policy.Database != nil:
				return a.putBlocks(c, s, all, r, dry, &out)
			}
			for _, o := range all {
				subject, err := a.Engine.Subject(o.Rule, o.Key)
				if err != nil {
					return err
				}
				one := &found{Subject: subject, rule: a.ruleOf(o.Rule), key: o.Key, id: s.id, shown: s.shown}
				if err := a.recorded(c, "block", r.Reason, nil, func(s *found) error { return conflicts(s.Block(until)) })(one, dry); err != nil {
					return err
				}
				out.Blocked = append(out.Blocked, blockedRule{Rule: o.Rule})
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	out.changed = result.(changed)
	return out, nil
}

// blocksOf returns overrides for the rules under which a subject can be blocked.
func (a *API) blocksOf(s *found, out *changedEverywhere) (all []policy.Override, err error) {
	own := maps.Clone(s.key)
	if s.id != "" {
		own = s.Values() // an override has to say it
	}
	maps.DeleteFunc(own, func(part, _ string) bool { return strings.HasPrefix(part, "const:") })
	if part, stands := anyValue(own); stands {
		return nil, badField("/key/"+escaped(part), "an override reads \"*\" as every value, and would block others: block this one by a rule")
	}
	rules := a.Policy.Now().Document.Rules
	for i := range rules {
		key, counts := keyWith(&rules[i], own)
		name, more := rules[i].Name, len(key) > len(own)
		switch {
		case !counts:
		case a.Policy.Database != nil && len(s.Hashed()) > 0:
			out.Open = append(out.Open, openRule{name, "the value is too long to be kept, and no override can name it"})
		case a.Policy.Database == nil && more:
			out.Open = append(out.Open, openRule{name, "its key has more parts, and only an override in a database can leave these open"})
		default:
			o := policy.Override{Rule: name, Key: key}
			if subject, err := a.Engine.Subject(name, key); err == nil && !more {
				if held, is := subject.Override(); is && a.alone(&found{Subject: subject}, &held) {
					o.Key = held.Key // it may write the key in another way
				}
			}
			all = append(all, o)
		}
	}
	return all, nil
}

// keyWith returns the key of an override that holds for all subjects of a rule with those values, if the rule
// counts by all of them.
func keyWith(r *policy.Rule, own map[string]string) (key map[string]string, counts bool) {
	key = map[string]string{}
	if r.Exempt || r.Block || len(own) == 0 {
		return nil, false
	}
	for part := range own {
		if !slices.Contains(r.Key, part) {
			return nil, false
		}
	}
	for _, part := range r.Key {
		if value, given := own[part]; given {
			key[part] = value
		} else if !strings.HasPrefix(part, "const:") {
			key[part] = "*"
		}
	}
	return key, true
}

// putBlocks makes overrides that block, whatever there was before.
func (a *API) putBlocks(c *call, s *found, all []policy.Override, r *blockRequest, dry bool, out *changedEverywhere) error {
	var items []control.Item
	for i := range all {
		o := &all[i]
		o.Block, o.Until, o.Reason, o.By = true, r.Until, r.Reason, c.actor
		if _, _, err := a.examineOverride(o); err != nil && o.Rule == s.rule.Name {
			return err
		} else if err != nil {
			out.Open = append(out.Open, openRule{o.Rule, plain(err)})
			continue
		}
		id := control.OverrideID(o.Rule, o.Key)
		one := blockedRule{Rule: o.Rule, Override: id}
		old, exists := a.lists.Find(a.Policy.Now(), control.Overrides, id)
		if exists && old.Version > 0 {
			one.Before = old.Document.(*policy.Override)
		}
		out.Blocked = append(out.Blocked, one)
		items = append(items, control.Item{ID: id, Document: o, Version: old.Version})
	}
	put, err := a.Policy.PutAll(c.Context(), c.actor, items, dry)
	if err != nil || dry {
		return raced(err)
	}
	for i := range put {
		out.Blocked[i].ETag = put[i].ETag()
		a.logChange(c, control.Overrides, false, put[i].Version)
	}
	return nil
}
