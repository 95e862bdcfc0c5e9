package accesslog

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// text returns what a value says: of a string its text, of a number, true or false as it is written, of
// an array its first. It is empty for everything else.
func (e *Entry) text(v value) []byte {
	raw := v.raw
	if len(raw) > 0 && raw[0] == '[' {
		raw, _ = element(raw, blank(raw, 1))
	}
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		return e.unquoted(raw)
	case '{', '[', 'n':
		return nil
	}
	return raw
}

// unquoted returns the text of a string. Bytes that are no UTF-8 stay as they are: a server that writes
// them has been sent them.
func (e *Entry) unquoted(raw []byte) []byte {
	s := raw[1 : len(raw)-1]
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	from := len(e.own)
	e.own = unescape(e.own, s)
	return e.own[from:len(e.own):len(e.own)]
}

// unescape appends the text of a string that [stringEnd] has accepted. Half a surrogate pair becomes
// U+FFFD.
func unescape(to, s []byte) []byte {
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(to, s...)
		}
		to = append(to, s[:i]...)
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(s)
			s = s[4:]
			if utf16.IsSurrogate(r) {
				other := rune(-1)
				if len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
					other = hex4(s[2:])
				}
				if r = utf16.DecodeRune(r, other); r != utf8.RuneError {
					s = s[6:]
				}
			}
			to = utf8.AppendRune(to, r)
			continue
		}
		to = append(to, c)
	}
}

// hex4 returns the number that four hexadecimal digits are, or -1.
func hex4(b []byte) rune {
	if len(b) < 4 {
		return -1
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c-'0' < 10:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// element returns the value at i of an array, and where the next is; nil at the end. The array has been
// read before.
func element(array []byte, i int) (raw []byte, next int) {
	if array[i] == ']' {
		return nil, i
	}
	end := skip(array, i, 0)
	return array[i:end], comma(array, end)
}

// pair returns the name and the value at i of an object, and where the next is; nil at the end. The
// object has been read before.
func pair(object []byte, i int) (name, raw []byte, next int) {
	if object[i] == '}' {
		return nil, nil, i
	}
	end := stringEnd(object, i+1)
	name = object[i:end]
	i = colon(object, end)
	end = skip(object, i, 0)
	return name, object[i:end], comma(object, end)
}

// comma returns where that is which follows a value: another, or what closes.
func comma(b []byte, i int) int {
	if i = blank(b, i); b[i] == ',' {
		i = blank(b, i+1)
	}
	return i
}
