//go:build unix

package proxy

import "syscall"

// looks reports whether quiet works on this operating system.
const looks = true

// quiet reports whether an idle connection is open and has no data to read. Otherwise, an unrequested answer could
// be taken for the answer to the next request.
func (l *link) quiet() bool {
	quiet := false
	err := l.raw.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), make([]byte, 1))
		quiet = err == syscall.EAGAIN
		return true
	})
	return err == nil && quiet
}
