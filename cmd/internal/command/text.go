package command

import (
	"fmt"
	"time"
)

// Count returns "1 rule", "2 rules".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// RoundUp rounds up to seconds, or to milliseconds if there is at most one second.
func RoundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > time.Second {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
