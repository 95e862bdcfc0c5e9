//go:build unix

package proxy

import "syscall"

// looks reports whether quiet can tell.
const looks = true

// quiet reports whether an idle connection is open and has nothing to read. An unrequested answer would be mistaken
// for the answer to the next request.
func (l *link) quiet() bool {
	quiet := false
	err := l.raw.Read(func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), make([]byte, 1))
		quiet = err == syscall.EAGAIN
		return true
	})
	return err == nil && quiet
}
