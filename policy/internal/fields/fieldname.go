package fields

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy/internal/fold"
)

// likeness describes how closely the name of a member matches a requested name.
type likeness uint8

const (
	different likeness = iota
	similar            // to some servers, the member's name is the requested name, or its first part
	same               // the names are equal, differ only in case, or are equal after PHP's changes
)

// claimLikeness compares the names of a token's claims. Servers compare these exactly, or without regard to case.
func claimLikeness(s, name string) likeness {
	if len(s) == len(name) && strings.EqualFold(s, name) {
		return same
	}
	return different
}

// cookieLikeness compares the names of cookies. PHP drops spaces before a name, ends the name at NUL, and makes a
// list of "name[]". It replaces dots, spaces, and a "[" without a "]" by underscores.
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

// dropped reports whether some servers drop the character at the ends of a name.
func dropped(r rune) bool {
	if r < utf8.RuneSelf {
		return r <= ' ' || r == 0x7F
	}
	return !letter(r)
}

// samePHP reports whether PHP may treat two names as equal, with or without regard to case. If bracket is true, a "["
// is treated as a bracket that is not closed.
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

// endsPHP reports whether PHP ends a name before s, the rest of its text.
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
//   - In Spring, "_username" and "!username" set defaults of "username".
//   - PHP and others end a name at NUL.
//   - Some frameworks treat "user_name" and "userName" as equal, and some ignore case.
//
// So names are similar if they have the same letters and digits, or if one name has the letters and digits of the
// other before or after a dot, a bracket or a control character.
func fieldLikeness(s, name string) likeness {
	if claimLikeness(s, name) == same {
		return same
	}
	if s == "" || plainName(s) && !sameLetter(s[0], name[0]) { // true for nearly all names
		return different
	}
	fresh, prefix := true, true // fresh: s is at the beginning of a part; prefix: s is in its first part
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

// wholeLikeness compares names like [fieldLikeness], but does not look for one name within the other, because
// readers of JSON distinguish the members of an object from the members of inner objects.
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

// plainName reports whether s is ASCII without soft characters.
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

// soft is true for the characters that some framework drops from names, replaces in names, or splits names at.
var soft = func() (t [256]bool) {
	for c := range utf8.RuneSelf {
		r := rune(c)
		t[c] = !unicode.IsLetter(r) && !unicode.IsDigit(r) && !hard(r)
	}
	return t
}()

// hard reports whether no framework drops or replaces the character in a name, or splits a name at it.
func hard(r rune) bool { return strings.ContainsRune(`{}"',:<>=&`, r) }

// sameLetters reports whether s has the same letters and digits as name, in the same order. If prefix is true, s
// may have more letters and digits after a character that splits names.
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

// nextLetter returns the first character of s that is not soft, and the index after this character. The index is 0 if
// all characters are soft.
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

// letter reports whether a character matters when names are compared.
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
