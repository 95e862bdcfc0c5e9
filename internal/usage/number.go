package usage

// MaxNumber is the largest number that a Scanner returns, and the largest that all readers of JSON have in common.
const MaxNumber = 1<<53 - 1

// ceil returns a JSON number of at most maxToken bytes, rounded up and limited to 0 through MaxNumber.
func ceil(number []byte) int64 {
	if number[0] == '-' {
		return 0
	}
	var (
		n        int64 // the first digits
		tens     int   // the power of ten that n lacks
		more     bool  // the digits left out are not all zero
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

// exponent returns an exponent. The largest mean the same for numbers of maxToken bytes.
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
