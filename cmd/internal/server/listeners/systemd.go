package listeners

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstInherited is the descriptor of the first socket that systemd passes.
const firstInherited = 3

// inheritedSockets returns the listening sockets that systemd has opened for this process: see sd_listen_fds(3).
// They outlive the process, so no connection is refused during a restart.
func inheritedSockets() (sockets []net.Listener, err error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > 64 {
		return nil, fmt.Errorf("environment: LISTEN_FDS=%.20q is not a number of sockets", os.Getenv("LISTEN_FDS"))
	}
	for fd := firstInherited; fd < firstInherited+n; fd++ {
		file := os.NewFile(uintptr(fd), "LISTEN_FDS")
		if file == nil {
			return nil, fmt.Errorf("environment: LISTEN_FDS=%d, but descriptor %d is not open", n, fd)
		}
		socket, err := net.FileListener(file) // duplicates the descriptor
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("socket %d of systemd: %w: use ListenStream in the socket unit", fd-firstInherited+1, err)
		}
		sockets = append(sockets, socket)
	}
	return sockets, nil
}

// listensAt reports whether a socket has the address that net.Listen would use for addr.
func listensAt(socket net.Listener, addr string) bool {
	has, ok := socket.Addr().(*net.TCPAddr)
	want, err := net.ResolveTCPAddr("tcp", addr)
	if !ok || err != nil || has.Port != want.Port {
		return false
	}
	everywhere := len(want.IP) == 0 || want.IP.IsUnspecified()
	return everywhere && has.IP.IsUnspecified() || has.IP.Equal(want.IP)
}

// NotifySystemd reports READY, STOPPING or RELOADING to systemd, unless the process was started without systemd:
// see sd_notify(3). It logs errors.
func NotifySystemd(log *slog.Logger, state string) {
	text := state + "=1"
	if state == "RELOADING" {
		text += monotonic()
	}
	if err := notify(text); err != nil {
		log.Warn("cannot notify systemd", "error", err)
	}
}

func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.Dial("unixgram", path) // a path that starts with "@" is an abstract address
	if err == nil {
		_, err = c.Write([]byte(state))
		err = cmp.Or(err, c.Close())
	}
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %s: %w", strings.TrimSpace(state), err)
	}
	return nil
}
