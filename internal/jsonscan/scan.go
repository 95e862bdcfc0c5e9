// Package jsonscan finds where the values of a JSON text (RFC 8259) begin and end. Only [Unescape] decodes values and
// may allocate memory, so a caller that reads a few members pays only for these.
//
// The readers of request bodies, of checks and of access logs import it. It imports only the standard library.
//
// Functions take a text and an index, and return the index after the part that they have read. If that part is not
// JSON, or is nested deeper than MaxDepth, they return the complement of the index of the first wrong byte, which
// is ^len(s) if s breaks off. Texts may contain bytes that are not UTF-8.
package jsonscan

import (
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 100

// Text is the type of a text that is scanned.
type Text interface{ string | []byte }

// Space returns the index after white space.
func Space[T Text](s T, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t' || s[i] == '\n' || s[i] == '\r') {
		i++
	}
	return i
}

// First returns the index of the first element or member of an array or object. i is the index after its opening
// bracket. If the array or object is empty, First returns the index after the closing bracket, and false.
func First[T Text](s T, i int, closing byte) (next int, more bool) {
	i = Space(s, i)
	if i < len(s) && s[i] == closing {
		return i + 1, false
	}
	return i, true
}

// Next returns the index of the next element or member of an array or object. i is the index after the previous
// one. After the last one, Next returns the index after the closing bracket, and false. At a wrong byte, it returns
// the complement of its index, and false.
func Next[T Text](s T, i int, closing byte) (next int, more bool) {
	i = Space(s, i)
	switch {
	case i < len(s) && s[i] == ',':
		return Space(s, i+1), true
	case i < len(s) && s[i] == closing:
		return i + 1, false
	}
	return ^i, false
}

// Name reads the name of a member, which begins at i. It returns the index after the name's quotes, and the index
// of the value.
func Name[T Text](s T, i int) (end, value int) {
	if end = String(s, i); end < 0 {
		return end, end
	}
	i = Space(s, end)
	if i == len(s) || s[i] != ':' {
		return end, ^i
	}
	return end, Space(s, i+1)
}

// Value reads the value that begins at i. depth is the number of objects and arrays that enclose the value.
func Value[T Text](s T, i, depth int) int {
	if i >= len(s) {
		return ^i
	}
	switch s[i] {
	case '"':
		return String(s, i)
	case '{', '[':
		return group(s, i, depth)
	case 't':
		return word(s, i, "true")
	case 'f':
		return word(s, i, "false")
	case 'n':
		return word(s, i, "null")
	}
	return Number(s, i)
}

// group reads an object or an array.
func group[T Text](s T, i, depth int) int {
	if depth >= MaxDepth {
		return ^i
	}
	object, closing := s[i] == '{', s[i]+2 // s[i]+2 is the closing bracket in ASCII
	i, more := First(s, i+1, closing)
	for more {
		if object {
			_, i = Name(s, i)
		}
		if i >= 0 {
			i = Value(s, i, depth+1)
		}
		if i < 0 {
			return i
		}
		i, more = Next(s, i, closing)
	}
	return i
}

func word[T Text](s T, i int, w string) int {
	for _, c := range []byte(w) {
		if i == len(s) || s[i] != c {
			return ^i
		}
		i++
	}
	return i
}

// Number reads a number.
func Number[T Text](s T, i int) int {
	if i < len(s) && s[i] == '-' {
		i++
	}
	begin := i
	if i = digits(s, i); i < 0 {
		return i
	}
	if s[begin] == '0' && i > begin+1 {
		return ^(begin + 1)
	}
	if i < len(s) && s[i] == '.' {
		if i = digits(s, i+1); i < 0 {
			return i
		}
	}
	if i < len(s) && s[i]|0x20 == 'e' {
		if i++; i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		return digits(s, i)
	}
	return i
}

// digits reads at least one digit.
func digits[T Text](s T, i int) int {
	begin := i
	for i < len(s) && s[i]-'0' <= 9 {
		i++
	}
	if i == begin {
		return ^i
	}
	return i
}

// String reads a string with its quotes.
func String[T Text](s T, i int) int {
	if i >= len(s) || s[i] != '"' {
		return ^i
	}
	for i++; ; {
		i = Plain(s, i)
		switch {
		case i == len(s):
			return ^i
		case s[i] == '"':
			return i + 1
		case s[i] < ' ':
			return ^i
		}
		if i = escape(s, i+1); i < 0 {
			return i
		}
	}
}

// Plain returns the index of the first quote, backslash or control character from i on, or len(s). It looks at eight
// bytes at a time.
func Plain[T Text](s T, i int) int {
	const ones = 0x0101010101010101
	for ; i+8 <= len(s); i += 8 {
		b := s[i : i+8]
		w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
			uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
		quote, slash := w^'"'*ones, w^'\\'*ones
		// Subtracting n from a byte below n sets the highest bit of the byte, but also borrows from the next byte.
		// So only the lowest hit is certain.
		hit := ((quote-ones)&^quote | (slash-ones)&^slash | (w-' '*ones)&^w) & (0x80 * ones)
		if hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for i < len(s) && s[i] != '"' && s[i] != '\\' && s[i] >= ' ' {
		i++
	}
	return i
}

// letters has the letters of escapes, and meanings has the characters that they stand for, in the same order.
const (
	letters  = `"\/bfnrt`
	meanings = "\"\\/\b\f\n\r\t"
)

// escape reads the rest of an escape, after its backslash.
func escape[T Text](s T, i int) int {
	switch {
	case i == len(s):
		return ^i
	case s[i] != 'u':
		if strings.IndexByte(letters, s[i]) < 0 {
			return ^i
		}
		return i + 1
	}
	for end := i + 5; ; {
		if i++; i == end {
			return i
		}
		if i == len(s) || hex(s[i]) < 0 {
			return ^i
		}
	}
}

// Unescape appends the text of a string that has been read, given without its quotes. An unpaired surrogate, which
// every reader treats differently, becomes U+FFFD; then the result whole is false.
func Unescape[T Text](dst []byte, s T) (text []byte, whole bool) {
	whole = true
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			dst = append(dst, s[i])
			i++
			continue
		}
		if s[i+1] != 'u' {
			dst = append(dst, meanings[strings.IndexByte(letters, s[i+1])])
			i += 2
			continue
		}
		r := unit(s, i+2)
		i += 6
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if i < len(s) && s[i] == '\\' && s[i+1] == 'u' {
				low = unit(s, i+2)
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
				whole = false
			} else {
				i += 6
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, whole
}

// unit returns the UTF-16 code unit of the four digits of \uXXXX.
func unit[T Text](s T, i int) (r rune) {
	for _, c := range [...]byte{s[i], s[i+1], s[i+2], s[i+3]} {
		r = r<<4 | hex(c)
	}
	return r
}

// hex returns the value of a hexadecimal digit, or -1.
func hex(c byte) rune {
	switch {
	case c-'0' <= 9:
		return rune(c - '0')
	case c|0x20-'a' <= 5:
		return rune(c|0x20-'a') + 10
	}
	return -1
}

// Elements returns the elements of an array that has been read. It stops where the text is not an array.
func Elements[T Text](array T) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		if len(array) == 0 || array[0] != '[' {
			return
		}
		i, more := First(array, 1, ']')
		for more {
			end := Value(array, i, 0)
			if end < 0 || !yield(array[i:end]) {
				return
			}
			i, more = Next(array, end, ']')
		}
	}
}

// Members returns the names, without their quotes, and the values of an object that has been read. It stops where
// the text is not an object.
func Members[T Text](object T) func(yield func(name, value T) bool) {
	return func(yield func(name, value T) bool) {
		if len(object) == 0 || object[0] != '{' {
			return
		}
		i, more := First(object, 1, '}')
		for more {
			end, at := Name(object, i)
			if end < 0 || at < 0 {
				return
			}
			behind := Value(object, at, 0)
			if behind < 0 || !yield(object[i+1:end-1], object[at:behind]) {
				return
			}
			i, more = Next(object, behind, '}')
		}
	}
}
