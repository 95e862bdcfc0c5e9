package policy

import (
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/percent"
)

// cutKey returns of a key, behind its hash tag if it has one, the name of its rule and what is behind
// that: see [keyText].
func cutKey(key string) (name, subject string) {
	if strings.HasPrefix(key, "{") {
		_, key, _ = strings.Cut(key, "}")
	}
	name, subject, _ = strings.Cut(key, "/")
	return name, subject
}

// valuesOf returns the values of a key of the rule, as they are written in it, and reports whether
// it can be one.
func (r *rule) valuesOf(subject string) (values []string, ok bool) {
	if len(r.key) == 0 {
		return nil, subject == ""
	}
	if strings.Count(subject, "/") != len(r.key)-1 { // before it makes a list of what may be very long
		return nil, false
	}
	values = strings.Split(subject, "/")
	for i := range values {
		if !r.canHave(i, values[i]) {
			return nil, false
		}
	}
	return values, true
}

// canHave reports whether a text can stand in a key for the value of part i.
func (r *rule) canHave(i int, written string) bool {
	value, state := unwrite(written)
	switch {
	case state == notAValue:
		return false
	case r.key[i].kind == constPart:
		return written == string(sluice.AppendKeyPart(nil, r.key[i].name))
	case r.key[i].kind == clientIP && state != missingValue:
		address, err := r.key[i].normal(value, 128)
		return err == nil && address == value
	}
	return true
}

// value returns the value of part i that is written in a key. Of a constant and a pattern it is known
// also if it was hashed.
func (r *rule) value(i int, written string) (value string, state valueState) {
	value, state = unwrite(written)
	if state != hashedValue {
		return value, state
	}
	switch r.key[i].kind {
	case constPart:
		return r.key[i].name, plainValue
	case routePart:
		for _, p := range r.match {
			if p.Key == written {
				return p.Text, plainValue
			}
		}
	}
	return value, state
}

// valueState says what a text in a key stands for.
type valueState uint8

const (
	notAValue    valueState = iota // none: no key has it
	plainValue                     // a value
	missingValue                   // that there is none
	hashedValue                    // one too long to be kept, of which this is the hash
)

// unwrite returns the value that stands in a key as written; of one that was hashed, what is
// written.
func unwrite(written string) (value string, state valueState) {
	switch {
	case written == sharedValue:
		return "", missingValue
	case written == "":
		return "", notAValue
	case written[0] == '#':
		if len(written) == 33 && strings.Trim(written[1:], "0123456789abcdef") == "" {
			return written, hashedValue
		}
		return "", notAValue
	}
	value = string(percent.AppendDecoded(nil, written))
	if string(sluice.AppendKeyPart(nil, value)) != written {
		return "", notAValue
	}
	return value, plainValue
}
