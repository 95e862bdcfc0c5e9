//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package redisstore

import "syscall"

// hungUp cannot be implemented on this system without a read that might wait.
func hungUp(syscall.RawConn) bool { return false }
