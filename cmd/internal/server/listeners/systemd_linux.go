package listeners

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// monotonic returns the line with the time by which systemd distinguishes this reload from an earlier one.
func monotonic() string {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return "" // Type=notify does not need it
	}
	return fmt.Sprintf("\nMONOTONIC_USEC=%d", now.Nano()/1000)
}
