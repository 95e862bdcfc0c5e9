package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// showKey says how much of a rule's keys people are to see.
type showKey uint8

const (
	showWhole showKey = iota // all of it
	showShort                // the beginning and the end of what clients name
	showHash                 // a pseudonym
)

var showKeyNames = []string{showWhole: "whole", showShort: "short", showHash: "hash"}

// missingShown is what people see of a part that the request lacks. No value looks like it: see
// appendPrintable.
const missingShown = "(missing)"

// ShownKey returns what people are to see of a key: all of it, shortened or hashed, as its rule
// says (see [Rule]), without the rule's name. It is one line of text that shows: what is not
// printable, or would change how its surroundings look, is escaped. Parts have " · " between them.
// Of keys that no rule of the policy has, values are shortened.
func (p *Policy) ShownKey(key string) string { return p.ShownSent(key, key) }

// ShownSent is ShownKey with the names as a request spelled them: see [Observation.Sent]. Pseudonyms are
// those of the key. What is sent is left out if the rule cannot have such a key.
func (p *Policy) ShownSent(key, sent string) string {
	name, subject := cutKey(key)
	if i, known := p.byName[name]; known {
		r := &p.rules[i]
		if values, ok := r.valuesOf(subject); ok {
			if _, spelled := cutKey(sent); r.folds && r.show != showHash && spelled != subject {
				if as, ok := r.valuesOf(spelled); ok {
					values = as
				}
			}
			return r.shown(subject, values)
		}
	}
	if name == "" { // a caller's: see Adhoc
		_, own, _ := strings.Cut(subject, "/")
		return string(appendValue(nil, own, false))
	}
	return joinShown(strings.SplitN(subject, "/", maxKeyParts+1), func(int) bool { return true })
}

// ShownWhole reports whether people are to see all of the subject's key.
func (s *Subject) ShownWhole() bool { return s.rule.show == showWhole }

// ShowsWhole reports whether people may see whole keys of a rule.
func (p *Policy) ShowsWhole(rule string) bool {
	r, err := p.counting(rule)
	return err == nil && r.show == showWhole
}

// Pseudonym returns what "show_key: hash" shows of the subject, whatever its rule shows. It tells subjects
// apart whose shortened keys look the same. It is the same for all rules that count by the same parts, on all
// instances. A caller who can guess the key can verify the guess.
func (s *Subject) Pseudonym() string {
	_, subject := cutKey(s.Key())
	return s.rule.pseudonym(subject)
}

// shown is ShownKey for a key of the rule, without its name.
func (r *rule) shown(subject string, values []string) string {
	switch {
	case len(r.key) == 0:
		return "everybody"
	case r.show == showHash:
		return r.pseudonym(subject)
	case r.show == showShort:
		return joinShown(values, r.shortens)
	}
	return joinShown(values, func(int) bool { return false })
}

// pseudonym returns what stands for a subject. It is the same for all rules that count by the same
// parts, wherever they run, so whoever guesses a value can tell that it is this one.
func (r *rule) pseudonym(subject string) string {
	h := sha256.New()
	fmt.Fprintf(h, "sluice show_key %q %s", partNames(r.key), subject)
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// defaultShow is showKey where the rule does not say it.
func defaultShow(key []part) showKey {
	for i := range key {
		if key[i].isSecret() {
			return showShort
		}
	}
	return showWhole
}

// SecretPart reports whether whoever knows values of a part of a key, such as "api_key", may be able
// to act as somebody else. Where a rule does not say how much of its keys people see, these are
// shortened.
func SecretPart(part string) bool {
	p, err := parsePart(part)
	return err == nil && p.isSecret()
}

func (p *part) isSecret() bool {
	return p.kind == apiKey || p.kind == cookiePart || p.kind == jwtPart || p.kind == headerPart && p.name == "Authorization"
}

// isNamed reports whether the value is a name, of a client's or the program's choice.
func (p *part) isNamed() bool {
	switch p.kind {
	case clientIP, routePart, hostPart, methodPart, constPart, tlsFingerprint:
		return false
	}
	return true
}

// shortens reports whether part i is shortened: what is a name, or if nothing is the address.
func (r *rule) shortens(i int) bool {
	if r.key[i].kind != clientIP {
		return r.key[i].isNamed()
	}
	for n := range r.key {
		if r.key[n].isNamed() {
			return false
		}
	}
	return true
}

// partsBetween is what stands between the parts of a key that is shown.
const partsBetween = " · "

func joinShown(values []string, short func(i int) bool) string {
	var b []byte
	for i, v := range values {
		if i > 0 {
			b = append(b, partsBetween...)
		}
		b = appendValue(b, v, short(i))
	}
	return string(b)
}

// appendValue appends what people are to see of a value as it is written in a key.
func appendValue(dst []byte, written string, short bool) []byte {
	value, state := unwrite(written)
	switch {
	case state == missingValue:
		return append(dst, missingShown...)
	case state == notAValue:
		return append(dst, "…"...)
	case state == hashedValue && short:
		return append(append(dst, value[:7]...), "…"...)
	case state == hashedValue:
		return append(dst, value...)
	case !short:
		return appendPrintable(dst, value)
	}
	return appendShort(dst, value)
}

// Shorten returns so much of a value of a key that people recognize it and nobody can use it: the
// first four characters and the last two, of one of less than 12 the first two, of one of less than 6
// none, and of an address its network. It is a line that shows, as [Policy.ShownKey] is.
func Shorten(value string) string { return string(appendShort(nil, value)) }

// appendShort appends what Shorten returns.
func appendShort(dst []byte, value string) []byte {
	if a, err := netip.ParseAddr(value); err == nil {
		return appendNetwork(dst, a)
	}
	text := []rune(value)
	first, last := 4, 2
	switch n := len(text); {
	case n < 6:
		first, last = 0, 0
	case n < 12:
		first, last = 2, 0
	}
	dst = appendPrintable(dst, string(text[:first]))
	dst = append(dst, "…"...)
	return appendPrintable(dst, string(text[len(text)-last:]))
}

// appendNetwork appends where about an address is.
func appendNetwork(dst []byte, a netip.Addr) []byte {
	bits := 24
	if a.Is6() {
		bits = 32
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return append(dst, "…"...)
	}
	return p.AppendTo(dst)
}

// appendPrintable appends a text of which nothing is invisible, nor moves, covers or joins what
// stands around it, and which is not taken for what stands for something else: "(missing)", or the
// text between parts.
func appendPrintable(dst []byte, s string) []byte {
	marks, space := maxMarks, true // as if a mark or a space had come before
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		mark := unicode.Is(unicode.M, r)
		if mark {
			marks++
		}
		switch {
		case r == utf8.RuneError && n == 1:
			dst = fmt.Appendf(dst, `\x%02x`, s[i])
		case r == '\\', r == '(' && i == 0:
			dst = append(dst, '\\', byte(r))
		case r == ' ' && (space || i == len(s)-1):
			dst = append(dst, `\x20`...)
		case r == ' ', unicode.IsPrint(r) && !blank(r) && r != '·' && (!mark || marks <= maxMarks):
			dst = append(dst, s[i:i+n]...)
		case r < 0x80:
			dst = fmt.Appendf(dst, `\x%02x`, r)
		case r <= 0xffff:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = fmt.Appendf(dst, `\U%08x`, r)
		}
		if space = r == ' '; !mark {
			marks = 0
			if !unicode.IsLetter(r) || blank(r) {
				marks = maxMarks
			}
		}
		i += n
	}
	return dst
}

// maxMarks is how many marks, such as accents, a letter can have.
const maxMarks = 3

// blank reports whether a character of a class that shows does not: the fillers of Hangul, selectors
// of variants, those that join or are empty, and what stands for bytes that are no text.
func blank(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == 0x2800 || r == 0x1d159 || r == utf8.RuneError
}
