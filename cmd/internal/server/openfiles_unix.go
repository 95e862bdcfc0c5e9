//go:build unix

package server

import "syscall"

// openFiles returns the maximum number of open files of the process, or 0 if it is unknown.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur)
}
