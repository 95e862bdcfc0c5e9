package usage

// MaxNumber is the largest number that a Scanner returns. It is the largest whole number that all JSON readers can
// represent.
const MaxNumber = 1<<53 - 1

// ceil returns a JSON number of at most maxToken bytes, rounded up and clamped to the range from 0 to MaxNumber.
func ceil(number []byte) int64 {
	if number[0] == '-' {
		return 0
	}
	var (
		n        int64 // the leading digits
		tens     int   // the number is n times 10 to this power
		more     bool  // whether a digit that was left out is not zero
		fraction bool
	)
digits:
	for i, c := range number {
		switch {
		case c == '.':
			fraction = true
		case c|0x20 == 'e':
			tens += exponent(number[i+1:])
			break digits
		case n <= MaxNumber:
			n = n*10 + int64(c-'0')
			if fraction {
				tens--
			}
		default:
			more = more || c != '0'
			if !fraction {
				tens++
			}
		}
	}
	for ; tens > 0 && n > 0 && n <= MaxNumber; tens-- {
		n *= 10
	}
	for ; tens < 0 && n > 0; tens++ {
		more = more || n%10 != 0
		n /= 10
	}
	if more {
		n++
	}
	return min(n, MaxNumber)
}

// exponent returns an exponent of at most 10*maxToken. For numbers of up to maxToken bytes, larger exponents would
// give the same result.
func exponent(digits []byte) (e int) {
	negative := digits[0] == '-'
	if negative || digits[0] == '+' {
		digits = digits[1:]
	}
	for _, c := range digits {
		e = min(e*10+int(c-'0'), 10*maxToken)
	}
	if negative {
		return -e
	}
	return e
}
