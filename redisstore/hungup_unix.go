//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package redisstore

import "syscall"

// hungUp reports whether the other side has closed a connection on which nothing is due. It
// does not wait, and takes nothing away from a reader.
func hungUp(raw syscall.RawConn) (yes bool) {
	var head [5]byte
	err := raw.Control(func(fd uintptr) {
		for {
			n, _, err := syscall.Recvfrom(int(fd), head[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if err == syscall.EINTR {
				continue
			}
			yes = err == nil && (n == 0 || isAlert(head[:n])) || err != nil && err != syscall.EAGAIN
			return
		}
	})
	return yes || err != nil
}

// isAlert reports whether a record of TLS is one that ends the connection. The end of the
// stream is hidden behind it. Since TLS 1.3 it looks like data, of a length that no reply has:
// two bytes, the type, and 16 for its integrity.
func isAlert(record []byte) bool {
	const alert, data = 21, 23
	return record[0] == alert || len(record) == 5 && record[0] == data && record[3] == 0 && record[4] == 19
}
