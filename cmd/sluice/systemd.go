package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
)

// firstInherited is the descriptor at which systemd begins with the sockets that it passes.
const firstInherited = 3

// inheritedSockets returns the listening sockets that systemd has opened for this process, as
// sd_listen_fds(3) says it. They outlive it, so that nobody is refused while it restarts.
func inheritedSockets() (sockets []net.Listener, err error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	n, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil || n < 0 || n > 64 {
		return nil, fmt.Errorf("environment: LISTEN_FDS=%.20q is no number of sockets", os.Getenv("LISTEN_FDS"))
	}
	for fd := firstInherited; fd < firstInherited+n; fd++ {
		file := os.NewFile(uintptr(fd), "LISTEN_FDS")
		if file == nil {
			return nil, fmt.Errorf("environment: LISTEN_FDS=%d, and there is no descriptor %d", n, fd)
		}
		socket, err := net.FileListener(file) // a duplicate
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("socket %d of systemd: %w: use ListenStream in the socket unit", fd-firstInherited+1, err)
		}
		sockets = append(sockets, socket)
	}
	return sockets, nil
}

// listensAt reports whether a socket is the one that net.Listen would open for addr.
func listensAt(socket net.Listener, addr address) bool {
	has, ok := socket.Addr().(*net.TCPAddr)
	want, err := net.ResolveTCPAddr("tcp", string(addr))
	if !ok || err != nil || has.Port != want.Port {
		return false
	}
	everywhere := len(want.IP) == 0 || want.IP.IsUnspecified()
	return everywhere && has.IP.IsUnspecified() || has.IP.Equal(want.IP)
}

// tellSystemd does the same as notifySystemd, and logs its error.
func tellSystemd(log *slog.Logger, state string) {
	if err := notifySystemd(state); err != nil {
		log.Warn("systemd does not hear how it goes", "error", err)
	}
}

// notifySystemd tells systemd of a change of state, if it asks for that, as sd_notify(3) says it.
func notifySystemd(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.Dial("unixgram", path) // "@" is an abstract one
	if err == nil {
		_, err = c.Write([]byte(state))
		err = cmp.Or(err, c.Close())
	}
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %s: %w", strings.TrimSpace(state), err)
	}
	return nil
}
