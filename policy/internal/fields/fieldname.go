package fields

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy/internal/fold"
)

// likeness is how closely the name of a member matches a requested name.
type likeness uint8

const (
	different likeness = iota
	similar            // some servers take the member's name for the requested name, or for the first part of it
	same               // the names differ at most in case, or are equal after PHP's changes
)

// claimLikeness compares the names of a token's claims. Servers compare them exactly, or without case.
func claimLikeness(s, name string) likeness {
	if len(s) == len(name) && strings.EqualFold(s, name) {
		return same
	}
	return different
}

// cookieLikeness compares the names of cookies. PHP drops spaces before a name, ends the name at NUL, takes dots,
// spaces, and a "[" without a "]" after it for underscores, and makes a list of "name[]".
func cookieLikeness(s, name string) likeness {
	if claimLikeness(s, name) == same || samePHP(s, name, false) {
		return same
	}
	bare := s
	if strings.IndexByte(name, '[') < 0 {
		if len(s) == len(name) && samePHP(s, name, true) {
			return similar
		}
		bare, _, _ = strings.Cut(s, "[")
	}
	bare = strings.TrimFunc(bare, dropped)
	if len(bare) < len(s) && samePHP(bare, name, false) {
		return similar
	}
	return different
}

// dropped reports whether some servers drop the character from the ends of a name.
func dropped(r rune) bool {
	if r < utf8.RuneSelf {
		return r <= ' ' || r == 0x7F
	}
	return !letter(r)
}

// samePHP reports whether PHP may take two names as equal, with or without case. With bracket, it treats "[" as a
// bracket that is not closed.
func samePHP(s, name string, bracket bool) bool {
	s, name = strings.TrimLeft(s, " "), strings.TrimLeft(name, " ")
	for !endsPHP(s) && !endsPHP(name) {
		a, n := utf8.DecodeRuneInString(s)
		b, m := utf8.DecodeRuneInString(name)
		if phpRune(a, bracket) != phpRune(b, bracket) && !strings.EqualFold(s[:n], name[:m]) {
			return false
		}
		s, name = s[n:], name[m:]
	}
	return endsPHP(s) && endsPHP(name)
}

// endsPHP reports whether nothing is left of a name for PHP.
func endsPHP(s string) bool { return s == "" || s[0] == 0 }

func phpRune(r rune, bracket bool) rune {
	if r == ' ' || r == '.' || bracket && r == '[' {
		return '_'
	}
	return r
}

// fieldLikeness compares the names of the fields of queries, forms and objects. Frameworks change such names:
//
//   - PHP and Rack drop or replace characters that cannot be in a variable's name ("user.name", " user name",
//     "[username]", "username]"), and make lists and maps of "username[]", "username[0]" and "username[x]"
//   - ASP.NET finds "username" in "model.username" and "model[username]", Rails in
//     "session[username]"
//   - Spring takes "_username" and "!username" for a default of "username"
//   - PHP and others end a name at NUL
//   - some treat "user_name" and "userName" as equal, as they ignore case
//
// So names are similar if they have the same letters and digits, or if one has the letters and digits of the other
// before or after a dot, a bracket or a control character.
func fieldLikeness(s, name string) likeness {
	if claimLikeness(s, name) == same {
		return same
	}
	if s == "" || plainName(s) && !sameLetter(s[0], name[0]) { // true for nearly all names
		return different
	}
	fresh, prefix := true, true // at the beginning of a part; in the first part
	for start, r := range s {
		switch {
		case splits(r):
			fresh = true
		case !fresh || !letter(r):
		case sameLetters(s[start:], name, prefix):
			return similar
		default:
			fresh, prefix = false, false
		}
	}
	if _, n := nextLetter(name); prefix && n == 0 { // neither has letters
		return similar
	}
	return different
}

// wholeLikeness compares names as [fieldLikeness] does, but does not look for one name within the other, because
// readers of JSON distinguish an object's members from the members of objects in it.
func wholeLikeness(s, name string) likeness {
	switch {
	case claimLikeness(s, name) == same:
		return same
	case s == "" || plainName(s) && !sameLetter(s[0], name[0]), !sameLetters(s, name, false):
		return different
	}
	return similar
}

// splits reports whether frameworks split names at the character.
func splits(r rune) bool { return r == '.' || r == '[' || r == ']' || r < ' ' || r == 0x7F }

// plainName reports whether s is made of ASCII letters and digits.
func plainName(s string) bool {
	for i := range len(s) {
		if c := s[i]; soft[c] || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func sameLetter(a, b byte) bool {
	return fold.Lower(a) == fold.Lower(b) || soft[b] || b >= utf8.RuneSelf
}

// soft are the characters that some framework drops from a name, replaces in it, or splits
// it at.
var soft = func() (t [256]bool) {
	for c := range utf8.RuneSelf {
		r := rune(c)
		t[c] = !unicode.IsLetter(r) && !unicode.IsDigit(r) && !hard(r)
	}
	return t
}()

// hard reports whether no framework drops or replaces the character in a name, or splits a name at it.
func hard(r rune) bool { return strings.ContainsRune(`{}"',:<>=&`, r) }

// sameLetters reports whether s has the letters and digits of name, in their order, and no others; with prefix, s
// may have more after a character that splits names.
func sameLetters(s, name string, prefix bool) bool {
	i := 0
	for _, want := range name {
		if !letter(want) {
			continue
		}
		r, n := nextLetter(s[i:])
		if n == 0 || fold.Rune(r) != fold.Rune(want) {
			return false
		}
		i += n
	}
	rest := s[i:]
	_, n := nextLetter(rest)
	return n == 0 || prefix && splits(rune(rest[0]))
}

// nextLetter returns the first character of s that is not soft, and the length of s up to and including it, or 0.
func nextLetter(s string) (rune, int) {
	for i, r := range s {
		if r < utf8.RuneSelf && !soft[r] {
			return r, i + 1
		}
		if r >= utf8.RuneSelf && letter(r) {
			return r, i + utf8.RuneLen(r)
		}
	}
	return 0, 0
}

// letter reports whether a character makes names differ.
func letter(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return !soft[r]
	case r <= maxBasic:
		return printed[r/64]&(1<<(r%64)) != 0
	}
	return unicode.IsPrint(r)
}

const maxBasic = 0xFFFF

// printed has a bit for each character of the basic plane for which unicode.IsPrint is true. unicode.IsPrint is
// slow for some characters, and a request may consist of them.
var printed = func() (bits [(maxBasic + 1) / 64]uint64) {
	for _, table := range unicode.PrintRanges {
		for _, part := range table.R16 {
			for c := int(part.Lo); c <= int(part.Hi); c += int(part.Stride) {
				bits[c/64] |= 1 << (c % 64)
			}
		}
	}
	return bits
}()
