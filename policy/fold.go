package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// appendFold appends s with all letters that differ only in case made equal. Bytes that
// are not UTF-8 stay as they are.
func appendFold(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, lower(c))
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, s[i])
		} else {
			dst = utf8.AppendRune(dst, foldRune(r))
		}
		i += n
	}
	return dst
}

// foldRune also goes by the upper case, for letters such as the long s, of which the
// upper case is that of another letter.
func foldRune(r rune) rune { return unicode.ToLower(unicode.ToUpper(unicode.ToLower(r))) }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// folded reports whether appendFold leaves s as it is, for ASCII.
func folded(s string) bool {
	for i := range len(s) {
		if c := s[i]; c >= utf8.RuneSelf || lower(c) != c {
			return false
		}
	}
	return true
}

// appendName appends a name of an account as a server may compare it, so that nobody
// has a second bucket for "alice" in " Alice": without spaces around it, case, width
// and other forms of compatibility, and accents. It reports false for what no two
// servers need to read alike: bytes that are not UTF-8, what has replaced such bytes,
// and characters that do not show.
func appendName(dst []byte, s string) ([]byte, bool) {
	s = strings.TrimSpace(s)
	ascii := true
	for _, r := range s {
		if hidden(r) {
			return dst, false
		}
		ascii = ascii && r < utf8.RuneSelf
	}
	if ascii {
		return appendFold(dst, s), true
	}
	for _, r := range norm.NFKD.String(s) {
		if r < 0x300 || r > 0x36F { // no combining accent
			dst = utf8.AppendRune(dst, foldRune(r))
		}
	}
	return dst, true
}

// hidden reports whether a character cannot be told by looking at it, or has replaced
// bytes that are not UTF-8.
func hidden(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
