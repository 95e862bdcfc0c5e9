package parts

import (
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/pattern"
	"github.com/sluicehq/sluice/policy/internal/percent"
)

// CutKey removes the hash tag of a key, if it has one, and splits the key into the name of the rule and the text
// after the name: see [Keys].
func CutKey(key string) (name, subject string) {
	if strings.HasPrefix(key, "{") {
		_, key, _ = strings.Cut(key, "}")
	}
	name, subject, _ = strings.Cut(key, "/")
	return name, subject
}

// Split returns the values, in their written form, of a key with these parts. subject is the key without the name
// of the rule. Split returns false if no key can have such a subject.
func (l List) Split(subject string) (values []string, ok bool) {
	if len(l) == 0 {
		return nil, subject == ""
	}
	if strings.Count(subject, "/") != len(l)-1 { // checked before the split, because the text may be very long
		return nil, false
	}
	values = strings.Split(subject, "/")
	for i := range values {
		if !l[i].canHave(values[i]) {
			return nil, false
		}
	}
	return values, true
}

// canHave reports whether a text can be the written form of a value of the part.
func (p *Part) canHave(written string) bool {
	value, state := unwrite(written)
	constant, is := p.Constant()
	switch {
	case state == Invalid:
		return false
	case is:
		return written == string(sluice.AppendKeyPart(nil, constant))
	case p.IsAddress() && state != Missing:
		address, err := p.Normal(value, 128)
		return err == nil && address == value
	}
	return true
}

// Unwrite returns the value of the part with this written form. The parameter match has the patterns of the rule.
// The values of constants and patterns are known even if their written form is a hash.
func (p *Part) Unwrite(written string, match []*pattern.Pattern) (value string, state State) {
	value, state = unwrite(written)
	if state != Hashed {
		return value, state
	}
	if constant, is := p.Constant(); is {
		return constant, Plain
	}
	if p.IsRoute() {
		for _, m := range match {
			if m.Key == written {
				return m.Text, Plain
			}
		}
	}
	return value, state
}

// Fold folds a value that is in its written form, if values of the part are folded.
func (p *Part) Fold(written string) string {
	if !p.Folds() {
		return written
	}
	value, state := unwrite(written)
	if state != Plain {
		return written
	}
	return string(sluice.AppendKeyPart(nil, p.Canonical(value)))
}

// State describes the meaning of a text in a key.
type State uint8

const (
	Invalid State = iota // no key has such a text
	Plain                // a value
	Missing              // a part that the request lacks
	Hashed               // the hash of a value that was too long to be kept
)

// unwrite returns the value with this written form, or the text itself if it is a hash.
func unwrite(written string) (value string, state State) {
	switch {
	case written == Shared:
		return "", Missing
	case written == "":
		return "", Invalid
	case written[0] == '#':
		if len(written) == 33 && strings.Trim(written[1:], "0123456789abcdef") == "" {
			return written, Hashed
		}
		return "", Invalid
	}
	value = string(percent.AppendDecoded(nil, written))
	if string(sluice.AppendKeyPart(nil, value)) != written {
		return "", Invalid
	}
	return value, Plain
}
