package control

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// BlockedRule is a rule under which a subject was blocked.
type BlockedRule struct {
	Rule string `json:"rule"`
	// Override is the ID of the override that blocks the subject, and ETag is the ETag of this override after the
	// change. Both are empty without a database.
	Override string `json:"override,omitempty"`
	ETag     string `json:"etag,omitempty"`
	// Before is the override that was replaced; null: no override was replaced.
	Before *policy.Override `json:"before"`
}

// OpenRule is a rule that counts by the subject's key, but under which the subject cannot be blocked.
type OpenRule struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// blockEverywhere blocks a subject under every rule that counts by all parts of the subject's key. With a database,
// it does so in one transaction.
func (c *Control) blockEverywhere(ctx context.Context, who Caller, r *BlockRequest, until time.Time, dry bool) (*SubjectChange, error) {
	blocked := SubjectChange{Blocked: []BlockedRule{}, Open: []OpenRule{}}
	out, err := c.change(ctx, who, r.Target, dry, subjectAct{
		foresee: func(s *SubjectState) { s.block(until) },
		apply: func(s *found, dry bool) error {
			all, err := c.blocksOf(s, &blocked)
			switch {
			case err != nil:
				return err
			case c.policy.database != nil:
				return c.putBlocks(ctx, who, s, all, r, dry, &blocked)
			}
			for _, o := range all {
				subject, err := c.engine.Subject(o.Rule, o.Key)
				if err != nil {
					return err
				}
				one := &found{Subject: subject, rule: c.ruleOf(o.Rule), key: o.Key, id: s.id, shown: s.shown}
				if err := c.recorded(ctx, who, "block", r.Reason, nil, func(s *found) error { return conflicts(s.Block(until)) })(one, dry); err != nil {
					return err
				}
				blocked.Blocked = append(blocked.Blocked, BlockedRule{Rule: o.Rule})
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	out.Blocked, out.Open = blocked.Blocked, blocked.Open
	return out, nil
}

// blocksOf returns an override for each rule under which a subject can be blocked. Of the other rules, it adds
// those that count by the subject's key to the list out.Open.
func (c *Control) blocksOf(s *found, out *SubjectChange) (all []policy.Override, err error) {
	own := maps.Clone(s.key)
	if s.id != "" {
		own = s.Values() // an override names its subject by values, not by an ID
	}
	maps.DeleteFunc(own, func(part, _ string) bool { return strings.HasPrefix(part, "const:") })
	if part, stands := anyValue(own); stands {
		return nil, BadField(PointerTo("key", part), "in an override, \"*\" matches every value and would block other subjects: block this subject by a rule")
	}
	rules := c.policy.now().document.Rules
	for i := range rules {
		key, counts := keyWith(&rules[i], own)
		name, more := rules[i].Name, len(key) > len(own)
		switch {
		case !counts:
		case c.policy.database != nil && len(s.Hashed()) > 0:
			out.Open = append(out.Open, OpenRule{name, "the value is too long for an override"})
		case c.policy.database == nil && more:
			out.Open = append(out.Open, OpenRule{name, "its key has more parts, and only an override in a database can omit them"})
		default:
			o := policy.Override{Rule: name, Key: key}
			if subject, err := c.engine.Subject(name, key); err == nil && !more {
				if held, is := subject.Override(); is && c.alone(&found{Subject: subject}, &held) {
					o.Key = held.Key // the override may have another spelling of the key
				}
			}
			all = append(all, o)
		}
	}
	return all, nil
}

// keyWith returns the key of an override for all subjects of a rule that have the values in the map own. The result
// counts is true if the rule's key has all parts in this map, and the rule neither blocks nor exempts requests.
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

// putBlocks writes blocks as overrides. They replace existing overrides.
func (c *Control) putBlocks(ctx context.Context, who Caller, s *found, all []policy.Override, r *BlockRequest, dry bool, out *SubjectChange) error {
	var valid []policy.Override
	for _, o := range all {
		o.Block, o.Until, o.Reason, o.By = true, r.Until, r.Reason, who.Name
		if _, _, err := c.examine(&o); err != nil && o.Rule == s.rule.Name {
			return err
		} else if err != nil {
			out.Open = append(out.Open, OpenRule{o.Rule, plain(err)})
			continue
		}
		valid = append(valid, o)
	}
	blocked, err := c.writeBlocks(ctx, who, valid, dry)
	if err == nil {
		out.Blocked = append(out.Blocked, blocked...)
	}
	return err
}
