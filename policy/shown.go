package policy

import (
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// showKey says how much of a rule's keys people are to see.
type showKey uint8

const (
	showWhole showKey = iota // all of it
	showShort                // the beginning and the end of what clients name
	showHash                 // a pseudonym
)

var showKeyNames = []string{showWhole: "whole", showShort: "short", showHash: "hash"}

// ShownKey returns what people are to see of a key: all of it, shortened or hashed, as its rule
// says (see [Rule]), without the rule's name. It is one line of text that shows: what is not
// printable, or would change how its surroundings look, is escaped. Parts have " · " between them.
// Of keys that no rule of the policy has, values are shortened.
func (p *Policy) ShownKey(key string) string { return p.ShownSent(key, key) }

// ShownSent is ShownKey with the names as a request spelled them: see [Observation.Sent]. Pseudonyms are
// those of the key. What is sent is left out if the rule cannot have such a key.
func (p *Policy) ShownSent(key, sent string) string {
	name, subject := parts.CutKey(key)
	if i, known := p.byName[name]; known {
		r := &p.rules[i]
		if values, ok := r.key.Split(subject); ok {
			if _, spelled := parts.CutKey(sent); r.folds && r.show != showHash && spelled != subject {
				if as, ok := r.key.Split(spelled); ok {
					values = as
				}
			}
			return r.shown(subject, values)
		}
	}
	if name == "" { // a caller's: see Adhoc
		_, own, _ := strings.Cut(subject, "/")
		return string(parts.AppendShown(nil, own, false))
	}
	return parts.Join(strings.SplitN(subject, "/", maxKeyParts+1), func(int) bool { return true })
}

// ShownWhole reports whether people are to see all of the subject's key.
func (s *Subject) ShownWhole() bool { return s.rule.show == showWhole }

// Pseudonym returns what "show_key: hash" shows of the subject, whatever its rule shows. It tells subjects
// apart whose shortened keys look the same. It is the same for all rules that count by the same parts, on all
// instances. A caller who can guess the key can verify the guess.
func (s *Subject) Pseudonym() string {
	_, subject := parts.CutKey(s.Key())
	return s.rule.key.Pseudonym(subject)
}

// shown is ShownKey for a key of the rule, without its name.
func (r *rule) shown(subject string, values []string) string {
	switch {
	case len(r.key) == 0:
		return "everybody"
	case r.show == showHash:
		return r.key.Pseudonym(subject)
	}
	return r.key.Shown(values, r.show == showShort)
}

// defaultShow is showKey where the rule does not say it.
func defaultShow(key parts.List) showKey {
	if key.Any((*parts.Part).IsSecret) {
		return showShort
	}
	return showWhole
}

// SecretPart reports whether whoever knows values of a part of a key, such as "api_key", may be able
// to act as somebody else. Where a rule does not say how much of its keys people see, these are
// shortened.
func SecretPart(part string) bool {
	p, err := parts.Parse(part)
	return err == nil && p.IsSecret()
}

// Shorten returns so much of a value of a key that people recognize it and nobody can use it: the
// first four characters and the last two, of one of less than 12 the first two, of one of less than 6
// none, and of an address its network. It is a line that shows, as [Policy.ShownKey] is.
func Shorten(value string) string { return string(parts.AppendShort(nil, value)) }

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
