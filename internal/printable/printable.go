// Package printable makes untrusted text safe to show in a log line or on a terminal, and writes durations and
// amounts of money for people.
package printable

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// cut is written at the end of a text that was shortened.
const cut = "…"

// maxMarks is the largest number of marks, such as accents, that Text keeps on one character: more marks would
// reach into the lines above and below.
const maxMarks = 2

// Text returns s with "�" in place of every byte and character that does not print as itself: invalid UTF-8,
// control characters, line breaks, unusual spaces, characters that change the direction of text, invisible
// characters, and marks on a character that has too many. The result has at most the given number of bytes, which
// must be at least 3. If s is longer, the result ends in "…". It shares no memory with s.
func Text(s string, most int) string {
	if len(s) <= most && ASCII(s) {
		return strings.Clone(s)
	}
	b := make([]byte, 0, min(len(s), most)+utf8.UTFMax)
	room := 0             // the last length that leaves room for cut
	marks := maxMarks     // a mark at the beginning has no character to be on
	for _, r := range s { // r is utf8.RuneError for invalid UTF-8
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		if marks > maxMarks || !Shows(r) {
			r = utf8.RuneError
		}
		if b = utf8.AppendRune(b, r); len(b) > most {
			return string(append(b[:room], cut...))
		}
		if len(b) <= most-len(cut) {
			room = len(b)
		}
	}
	return string(b)
}

// Line is [Text] without a limit of the length.
func Line(s string) string { return Text(s, math.MaxInt) }

// ASCII reports whether s has only printable ASCII characters.
func ASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Shows reports whether r is visible. Some characters in the categories of letters, symbols and marks are not.
func Shows(r rune) bool {
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) && r != '\u2800'
}

// Percent returns s with %XX in place of each byte for which bad returns true.
func Percent(s string, bad func(byte) bool) string {
	const digits = "0123456789ABCDEF"
	text := make([]byte, 0, len(s))
	for i := range len(s) {
		if c := s[i]; bad(c) {
			text = append(text, '%', digits[c>>4], digits[c&15])
		} else {
			text = append(text, c)
		}
	}
	return string(text)
}

// Duration writes a length of time without units that are zero: 15m, and not 15m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
