package policy

import (
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Sent returns [Observation.Key] with the names in it as the request spelled them. Names in queries and
// bodies are folded before they are counted, so that "lucy" and "Lucy" are one subject, "lucu"; people
// look for the name that was typed. [Policy.ShownSent] makes text of both. A name of more than
// [sluice.MaxKeyPart] bytes stays folded.
func (o *Observation) Sent(i int) string {
	key := o.Key(i)
	at := o.RuleIndex(i)
	if key == "" || at < 0 || o.Request.Subject != nil || !o.Policy().rules[at].folds {
		return key
	}
	return o.spelled(&o.Policy().rules[at], key)
}

// spelled returns a key of a rule with the values that the request has in place of folded ones. It is
// valid until the next call.
func (o *Observation) spelled(r *rule, key string) string {
	w := o.work
	name, subject := parts.CutKey(key)
	b := append(append(w.sent[:0], name...), '/')
	same := true
	for i := range r.key {
		written, rest, more := strings.Cut(subject, "/")
		if i > 0 {
			b = append(b, '/')
		}
		from := len(b)
		if text := w.x.Spelling(&r.key[i]); text != "" && written != parts.Shared {
			b = sluice.AppendKeyPart(b, text)
		} else {
			b = append(b, written...)
		}
		same = same && string(b[from:]) == written
		if subject = rest; more != (i < len(r.key)-1) {
			return key // of a rule that has another key
		}
	}
	if w.sent = b; same {
		return key
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Tier returns the tier of the request, and its customer: the value of the part that [Tiers] call the subject,
// as it is written in a key, empty if the request has none. A request that has neither a customer nor says its
// tier has none, whatever the default tier is. The tier is unknown where the policy has no tiers, where a
// [Subject] was asked about, and where the body says the tier and was not read. The name of a tier may be a
// client's choice: [Policy.HasTier] tells those that the policy knows.
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

// TierCustomer returns the key of a customer that [Observation.Tier] returns, and what people are to see of
// it: those of the first rule that counts by this part alone, if one does; else the key is empty.
func (p *Policy) TierCustomer(customer string) (key, shown string) {
	if p.tierSubject == nil {
		return "", string(parts.AppendShown(nil, customer, true))
	}
	for i := range p.rules {
		if r := &p.rules[i]; len(r.key) == 1 && r.key[0].String() == p.tierSubject.String() && !r.exempt && !r.block {
			key = r.name + "/" + customer
			return key, p.ShownKey(key)
		}
	}
	return "", string(parts.AppendShown(nil, customer, p.tierSubject.IsSecret()))
}

// TierNames returns the tiers that the rules of the policy have, and the default one, sorted.
func (p *Policy) TierNames() []string { return sortedKeys(p.knownTiers) }

// HasTier reports whether a tier is one of TierNames.
func (p *Policy) HasTier(name string) bool { return p.knownTiers[name] }
