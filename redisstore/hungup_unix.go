//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package redisstore

import "syscall"

// alert is the type of a TLS record that ends a connection. No reply of Redis begins so.
const alert = 21

// hungUp reports whether the other side has closed a connection on which nothing is due. It
// does not wait, and takes nothing away from a reader.
func hungUp(raw syscall.RawConn) (yes bool) {
	var first [1]byte
	err := raw.Control(func(fd uintptr) {
		for {
			n, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if err == syscall.EINTR {
				continue
			}
			yes = err == nil && (n == 0 || first[0] == alert) || err != nil && err != syscall.EAGAIN
			return
		}
	})
	return yes || err != nil
}
