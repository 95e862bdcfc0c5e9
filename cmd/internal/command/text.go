package command

import "time"

// RoundUp rounds up to seconds, or to milliseconds if there is at most one second.
func RoundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > time.Second {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
