// Package bytesize reads and writes numbers of bytes, such as 8MiB.
package bytesize

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// Text returns n in the largest unit that divides it.
func Text(n int64) string {
	for _, u := range units {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0"
}

// Parse reads a number of bytes, with or without a unit.
func Parse(s string) (int64, error) {
	for _, u := range units {
		digits, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, errors.New("write a size such as 64KiB or 10MiB")
}
