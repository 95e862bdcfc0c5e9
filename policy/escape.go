package policy

// appendUnescaped appends s with %XX resolved. An invalid escape stays.
func appendUnescaped(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if x, ok := unhex(s, i); ok {
				c = x
				i += 2
			}
		}
		dst = append(dst, c)
	}
	return dst
}

// unhex returns the byte that the escape at i stands for, if there is one.
func unhex(s string, i int) (byte, bool) {
	if len(s)-i < 3 || s[i] != '%' {
		return 0, false
	}
	return unhexPair(s[i+1], s[i+2])
}

func unhexPair(a, b byte) (byte, bool) {
	hi, ok := hexDigit(a)
	lo, ok2 := hexDigit(b)
	return hi<<4 | lo, ok && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch c = lower(c); {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
