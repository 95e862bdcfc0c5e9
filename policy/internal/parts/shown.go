package parts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"unicode"
	"unicode/utf8"
)

// missing is the shown form of a part that the request lacks. appendPrintable writes values so that they differ
// from it.
const missing = "(missing)"

// between separates the parts of a shown key.
const between = " · "

// Shown returns the shown form of a key with these values, which are in their written form. If the parameter short
// is true, names are shortened, or the address if the key has no name.
func (l List) Shown(values []string, short bool) string {
	return Join(values, func(i int) bool { return short && l.Shortens(i) })
}

// Shortens reports whether part i is shortened in shortened keys. Names are shortened; an address is shortened if
// the key has no name.
func (l List) Shortens(i int) bool {
	return l[i].isNamed() || l[i].kind.shown == asAddress && !l.Any((*Part).isNamed)
}

// Pseudonym returns the pseudonym of a subject, which is the text of a key after the name of the rule. The pseudonym
// is the same for all rules with these parts, and in all processes. As a consequence, a guess of the value can be
// verified.
func (l List) Pseudonym(subject string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "sluice show_key %q %s", l.Names(), subject))
	return hex.EncodeToString(sum[:6])
}

// Join returns the shown form of the values of a key with any parts. The function short selects the values to
// shorten.
func Join(values []string, short func(i int) bool) string {
	var b []byte
	for i, v := range values {
		if i > 0 {
			b = append(b, between...)
		}
		b = AppendShown(b, v, short(i))
	}
	return string(b)
}

// AppendShown appends the shown form of a value, which is in its written form.
func AppendShown(dst []byte, written string, short bool) []byte {
	value, state := unwrite(written)
	switch {
	case state == Missing:
		return append(dst, missing...)
	case state == Invalid:
		return append(dst, "…"...)
	case state == Hashed && short:
		return append(append(dst, value[:7]...), "…"...)
	case state == Hashed:
		return append(dst, value...)
	case !short:
		return appendPrintable(dst, value)
	}
	return AppendShort(dst, value)
}

// AppendShort appends a shortened value, which people can recognize but not use: the first four characters and the
// last two. From a value of fewer than 12 characters, it keeps only the first two, and from a value of fewer than 6,
// none. For an address, it appends the network.
func AppendShort(dst []byte, value string) []byte {
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

// appendNetwork appends a network that contains the address: a /24, or a /32 for IPv6.
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

// appendPrintable appends s with escapes for all characters that are invisible, or that would move, cover or join
// the text around them. The result cannot be confused with "(missing)" or with the separator between parts.
func appendPrintable(dst []byte, s string) []byte {
	marks, space := maxMarks, true // at the beginning, marks and spaces are escaped
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

// maxMarks is the maximum number of marks on a letter, such as accents, that are not escaped.
const maxMarks = 3

// blank reports whether a character that unicode.IsPrint accepts is invisible: fillers of Hangul, variation
// selectors, joiners, empty characters, and the replacement for bytes that are not text.
func blank(r rune) bool {
	return unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == 0x2800 || r == 0x1d159 || r == utf8.RuneError
}
