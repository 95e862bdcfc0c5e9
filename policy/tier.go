package policy

import (
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/parts"
	"github.com/sluicehq/sluice/policy/internal/table"
)

// tierSubjects are the subjects of a document, with their tiers. They never change.
type tierSubjects struct {
	table.Table[string]
	list     []TierSubject // the subjects of the document
	warnings []Problem
}

// WithSubjects returns a policy that differs from p only in its subjects, which are taken from list: see
// [Policy.WithOverrides].
func (p *Policy) WithSubjects(list []TierSubject) (*Policy, error) {
	c := newCompiler(nil)
	next := *p
	if next.subjects = c.tierSubjects(p, list); len(c.problems) > 0 {
		return nil, c.problems
	}
	return &next, nil
}

func (c *compiler) tierSource(p *Policy, t *Tiers) {
	p.tierFrom, p.tierSubject = c.tierPart("tiers.from", t.From), c.tierPart("tiers.subject", t.Subject)
	if t.From == "" && t.Subject == "" && t.Default != "" {
		c.fail("tiers", "write for example \"from: header:X-Plan\"", "tiers has no \"from\"")
	}
	if t.Default != "" && c.checkName("tiers.default", "tiers.default", t.Default) {
		p.tier = p.canonicalTier(t.Default)
	}
}

func (c *compiler) tierPart(field, text string) *parts.Part {
	switch text {
	case "":
		return nil
	case "route":
		c.fail(field, "use a part of the request, for example header:X-Plan", "%s cannot be route", field)
		return nil
	}
	return c.part(field, text)
}

// canonicalTier returns the name of a tier in the form that the same name has when it is read from requests.
func (p *Policy) canonicalTier(name string) string {
	if p.tierFrom == nil {
		return name
	}
	return p.tierFrom.Canonical(name)
}

// tierReadsBody reports whether the body may have to be read to know the tier of a request.
func (p *Policy) tierReadsBody() bool {
	return p.tierFrom != nil && p.tierFrom.ReadsBody() || p.tierSubject != nil && p.tierSubject.ReadsBody()
}

func (c *compiler) tierSubjects(p *Policy, list []TierSubject) tierSubjects {
	all := tierSubjects{list: list}
	c.list, c.rule = "subjects", ""
	if len(list) > 0 && p.tierSubject == nil {
		c.item = 0
		c.fail("", "write for example \"tiers: {subject: api_key}\" at the top of the document", "the key part that names subjects is missing")
		return all
	}
	unknown := make(map[string]int) // the first item with each unknown tier
	known := p.tierNames()
	for i := range list {
		c.item = i
		if tier, ok := c.tierSubject(p, &all); ok && !known[tier] {
			if _, seen := unknown[tier]; !seen {
				unknown[tier] = i
			}
		}
	}
	delete(known, "")
	for _, tier := range sortedKeys(unknown) {
		c.item = unknown[tier]
		c.warn(&all.warnings, spelling.Suggest(tier, sortedKeys(known)), "no rule has the tier %s: its subjects get the rules' own limits", spelling.Quote(tier))
	}
	c.endedMore(&all.warnings)
	all.Sort()
	return all
}

// tierNames returns the canonical names of the tiers of rules, and of the default tier.
func (p *Policy) tierNames() map[string]bool {
	all := map[string]bool{p.tier: true}
	for i := range p.rules {
		for _, t := range p.rules[i].tiers {
			all[t.tier] = true
		}
		if s := p.rules[i].sharing; s != nil {
			for name := range s.weights {
				all[name] = true
			}
		}
	}
	return all
}

// tierSubject adds the current subject, and returns its tier.
func (c *compiler) tierSubject(p *Policy, all *tierSubjects) (tier string, ok bool) {
	in := &all.list[c.item]
	before := len(c.problems)
	for _, f := range []struct{ name, text string }{{"subject", in.Subject}, {"tier", in.Tier}} {
		if f.text == "" {
			c.fail("", "write for example \"{subject: k-42, tier: pro}\"", "the entry has no %s", f.name)
			return "", false
		}
	}
	until := c.until(in.Until)
	c.checkName("tier", "tier", in.Tier)
	subject, of := c.tierKey(p, in.Subject)
	if len(c.problems) > before {
		return "", false
	}
	tier = p.canonicalTier(in.Tier)
	if first, twice := all.Add(of, subject, tier, until, c.item); twice {
		c.fail("", "remove one of them", "this subject has two entries, %s", c.first(first))
	}
	c.ended(&all.warnings, "entry", until)
	return tier, true
}

// tierKey returns the text of a subject in the form that the subject has when it is read from requests. The text is
// valid until the next call.
func (c *compiler) tierKey(p *Policy, value string) (text []byte, of table.Shape) {
	c.key.Reset()
	c.key.Begin("")
	of.Exact = 1
	if wrong := c.key.AddNamed(p.tierSubject, 0, value, p.ipv6Prefix, &of); wrong != nil {
		c.fail("subject", "", "%s: %v", p.tierSubject, wrong)
	}
	return c.key.Bytes(), of
}

// tierOf is the tier of a request.
type tierOf struct {
	known      bool
	name, from string
	key        parts.Keys // the key of the subject to look up
}

// tierName returns the tier of the request.
func (s *subjects) tierName(in *input) string {
	if t := &s.tier; !t.known {
		in.x.Route = ""
		t.known, t.name, t.from = true, in.policy.tier, tierDefault
		if e := s.listedTier(in); e != nil {
			t.name, t.from = in.policy.subjects.Value(e), tierListed
		} else if part := in.policy.tierFrom; part != nil {
			if tier, found := part.Value(&in.x); found {
				t.name, t.from = tier, part.String()
			}
		}
	}
	return s.tier.name
}

// Sources of a tier other than a part of the request: see [Trace].
const (
	tierListed  = "subjects"
	tierDefault = "default"
)

// listedTier returns the entry of the request's subject in the table of subjects, or nil.
func (s *subjects) listedTier(in *input) *table.Entry {
	if in.policy.subjects.Empty() {
		return nil
	}
	value, found := s.customer(in)
	if !found {
		return nil
	}
	return in.policy.subjects.Find(value.Subject, in.clock)
}

// customer returns the key of the request's customer, which has one part: the value of the key part that
// tiers.subject names.
func (s *subjects) customer(in *input) (key *parts.Keys, found bool) {
	value, found := in.policy.tierSubject.Value(&in.x)
	if !found {
		return nil, false
	}
	k := &s.tier.key
	k.Reset()
	k.Begin("")
	k.Add(value)
	return k, true
}

// tierOfKey returns the tier of the subject with the key in s.keys, if the tier depends only on the key.
func (s *subjects) tierOfKey(in *input, r *rule) (tier string, known bool) {
	p := in.policy
	if p.tierSubject == nil {
		return "", false
	}
	i := r.key.Index(p.tierSubject.String())
	if i < 0 {
		return "", false
	}
	k := &s.tier.key
	k.Reset()
	k.Begin("")
	k.AddWritten(s.keys.Values()[i])
	if e := p.subjects.Find(k.Subject, in.clock); e != nil {
		return p.subjects.Value(e), true
	}
	return p.tier, p.tierFrom == nil
}

// Tier returns the tier and the customer of the request. The field Subject of [Tiers] names a key part. The customer is
// the request's value of this part, written as in a key, or "" if the request has no such value. For a request with
// neither a customer nor a tier of its own, Tier returns "", although the rules apply the default tier. known is false
// if the policy has no tiers, if the request has a [Subject], or if the tier is in a body that was not read. The name
// of a tier can come from a client: [Policy.HasTier] reports whether the policy has such a tier.
func (o *Observation) Tier() (tier, customer string, known bool) {
	w := o.work
	p := w.policy
	if p.tierFrom == nil && p.tierSubject == nil || o.Request.Subject != nil || p.tierReadsBody() && !w.x.BodyRead() {
		return "", "", false
	}
	tier = w.subjects.tierName(&w.input)
	if p.tierSubject != nil {
		if key, found := w.subjects.customer(&w.input); found {
			return tier, key.Values()[0], true
		}
	}
	if w.subjects.tier.from == tierDefault {
		tier = ""
	}
	return tier, "", true
}

// TierCustomer returns the key of a customer that [Observation.Tier] has returned, and the form in which people see the
// customer. Both come from one rule: the first that charges requests and has the Subject of the document's [Tiers] as
// its only key part. Without such a rule, the key is empty.
func (p *Policy) TierCustomer(customer string) (key, shown string) {
	if p.tierSubject == nil {
		return "", string(parts.AppendShown(nil, customer, true))
	}
	for i := range p.rules {
		if r := &p.rules[i]; len(r.key) == 1 && r.key[0].String() == p.tierSubject.String() && r.charges() {
			key = r.name + "/" + customer
			return key, p.ShownKey(key)
		}
	}
	return "", string(parts.AppendShown(nil, customer, p.tierSubject.IsSecret()))
}

// TierNames returns the tiers of the rules of the policy, and the default tier, sorted.
func (p *Policy) TierNames() []string { return sortedKeys(p.knownTiers) }

// HasTier reports whether TierNames contains a tier.
func (p *Policy) HasTier(name string) bool { return p.knownTiers[name] }
