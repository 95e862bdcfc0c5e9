package printable

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// million is the number of micro-USD in a USD. All decimals of this package are counted in millionths.
const million = 1_000_000

// FormatMoney writes an amount in micro-USD for people: "50 USD", "0.50 USD", "0.000125 USD".
func FormatMoney(micro int64) string { return FormatDecimal(micro) + " USD" }

// FormatDecimal writes a number of millionths so that [ParseDecimal] can read it. A whole number has no point.
// Other numbers have at least two digits after the point.
func FormatDecimal(millionths int64) string {
	sign, whole := "", uint64(millionths)
	if millionths < 0 {
		sign, whole = "-", -whole
	}
	text := sign + strconv.FormatUint(whole/million, 10)
	part := whole % million
	if part == 0 {
		return text
	}
	digits := strings.TrimRight(fmt.Sprintf("%06d", part), "0")
	if len(digits) == 1 {
		digits += "0"
	}
	return text + "." + digits
}

// ParseDecimal reads a number such as "50" or "0.125", with up to six digits after the point, in millionths. It
// does not read signs, exponents or separators.
func ParseDecimal(s string) (millionths int64, err error) {
	whole, part, pointed := strings.Cut(s, ".")
	if !Digits(whole) || pointed && !Digits(part) {
		return 0, fmt.Errorf("%.40q is not a number such as 50 or 0.125", s)
	}
	part = strings.TrimRight(part, "0")
	if len(part) > 6 {
		return 0, fmt.Errorf("%.40q has more than six digits after the point", s)
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > math.MaxInt64/million-1 {
		return 0, fmt.Errorf("%.40s is too large", s)
	}
	if part == "" {
		return n * million, nil
	}
	fraction, err := strconv.ParseInt((part + "00000")[:6], 10, 64)
	return n*million + fraction, err
}

// Digits reports whether s has digits only, and at least one.
func Digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
