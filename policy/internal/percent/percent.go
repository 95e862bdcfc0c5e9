// Package percent decodes percent-encoding (RFC 3986, section 2.1) leniently: an invalid escape stands for itself,
// as in most servers.
package percent

// AppendDecoded appends s with its escapes (%XX) decoded. An invalid escape is not changed.
func AppendDecoded(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if x, ok := Byte(s, i); ok {
				c = x
				i += 2
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// Byte returns the byte that the escape at i stands for, if s has an escape there.
func Byte(s string, i int) (byte, bool) {
	if len(s)-i < 3 || s[i] != '%' {
		return 0, false
	}
	return Pair(s[i+1], s[i+2])
}

// Pair returns the byte that two hex digits stand for. It returns false if they are not hex digits.
func Pair(a, b byte) (byte, bool) {
	hi, ok := Digit(a)
	lo, ok2 := Digit(b)
	return hi<<4 | lo, ok && ok2
}

// Digit returns the value of a hex digit, in upper or lower case.
func Digit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
