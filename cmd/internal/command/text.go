package command

import "time"

// RoundUp rounds a duration up to whole seconds, or if it is at most a second, to milliseconds.
func RoundUp(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > time.Second {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
