package fields

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy/internal/fold"
)

// likeness says how a server may take the name of a member for a name that is asked for.
type likeness uint8

const (
	different likeness = iota
	similar            // some servers take it for the name, or for the first part of it
	same               // all that matters is the same
)

// claimLikeness compares the names of a token's claims: all servers read them to the letter,
// or without case.
func claimLikeness(s, name string) likeness {
	if len(s) == len(name) && strings.EqualFold(s, name) {
		return same
	}
	return different
}

// cookieLikeness compares the names of cookies. PHP drops spaces before a name, ends it at
// NUL, takes dots and spaces for underscores, and "[" where no "]" follows, and makes a list
// of "name[]".
func cookieLikeness(s, name string) likeness {
	if claimLikeness(s, name) == same || strings.EqualFold(phpName(s), phpName(name)) {
		return same
	}
	if strings.IndexByte(name, '[') < 0 {
		if folded := strings.ReplaceAll(s, "[", "_"); len(folded) == len(name) && strings.EqualFold(phpName(folded), phpName(name)) {
			return similar
		}
		s, _, _ = strings.Cut(s, "[")
	}
	s = strings.TrimFunc(s, dropped)
	if strings.EqualFold(phpName(s), phpName(name)) {
		return similar
	}
	return different
}

// dropped reports whether some servers drop the character from the ends of a name.
func dropped(r rune) bool { return r == '\uFEFF' || !unicode.IsGraphic(r) || unicode.IsSpace(r) }

var phpNames = strings.NewReplacer(" ", "_", ".", "_")

func phpName(s string) string {
	if !strings.ContainsAny(s, " .\x00") {
		return s
	}
	s, _, _ = strings.Cut(s, "\x00")
	return phpNames.Replace(strings.TrimLeft(s, " "))
}

// fieldLikeness compares the names of the fields of queries, forms and objects. Frameworks
// take liberties with them:
//
//   - PHP and Rack drop or replace what is not fit for a variable's name ("user.name",
//     " user name", "[username]", "username]"), and make lists and maps of "username[]",
//     "username[0]" and "username[x]"
//   - ASP.NET finds "username" in "model.username" and "model[username]", Rails in
//     "session[username]"
//   - Spring takes "_username" and "!username" for a default of "username"
//   - PHP and others end a name at NUL
//   - some tell "user_name" from "userName" no more than upper from lower case
//
// So similar is what has the same letters and digits, and what has them before or behind a
// dot, a bracket or a control character.
func fieldLikeness(s, name string) likeness {
	if claimLikeness(s, name) == same {
		return same
	}
	if s == "" || plainName(s) && !sameLetter(s[0], name[0]) { // as nearly all
		return different
	}
	fresh, prefix := true, true
	for start, c := range []byte(s) {
		switch {
		case splits(c):
			fresh = true
		case c < utf8.RuneSelf && soft[c] && fresh:
		case fresh:
			if sameLetters(s[start:], name, prefix) {
				return similar
			}
			fresh, prefix = false, false
		}
	}
	return different
}

// splits reports whether frameworks split names at the character.
func splits(c byte) bool { return c == '.' || c == '[' || c == ']' || c < ' ' || c == 0x7F }

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

// hard are those characters that no framework does so with.
func hard(r rune) bool { return strings.ContainsRune(`{}"',:<>=&`, r) }

// sameLetters reports whether s has the letters and digits of name, in their order, and no
// others; with prefix there may be more behind a character that splits names.
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
	return n == 0 || prefix && splits(rest[0])
}

// nextLetter returns the first character of s that is not soft and the length of s up to and
// with it, or 0 if there is none.
func nextLetter(s string) (rune, int) {
	for i, r := range s {
		if letter(r) {
			return r, i + utf8.RuneLen(r)
		}
	}
	return 0, 0
}

// letter reports whether a character makes names differ.
func letter(r rune) bool {
	if r < utf8.RuneSelf {
		return !soft[r]
	}
	return unicode.IsPrint(r) && !unicode.IsSpace(r)
}
