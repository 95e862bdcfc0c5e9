package cli

import (
	"fmt"
	"math"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
)

// plainText returns a text of others as one line that a terminal only shows.
func plainText(s string) string { return printable.Text(s, math.MaxInt) }

// counted returns "1 rule", "2 rules".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// short rounds up to seconds, or to milliseconds if there is at most one.
func short(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > time.Second {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
