//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package redisstore

import "syscall"

// hungUp reports whether the server has closed a connection on which no answer is expected. It does not wait, and
// does not consume data.
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

// isAlert reports whether a TLS record is an alert, which ends the connection. The server sends it just before it
// closes the connection. In TLS 1.3, an alert looks like application data, but no reply has its length: two bytes,
// a byte for the type, and 16 bytes for the integrity.
func isAlert(record []byte) bool {
	const alert, data = 21, 23
	return record[0] == alert || len(record) == 5 && record[0] == data && record[3] == 0 && record[4] == 19
}
