package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// conns makes connections, and keeps the set of open ones. The library does not check idle connections. So each
// connection checks before a write whether it has died while it was idle. At that point nothing has been sent, so
// the call can use another connection.
type conns struct {
	generation atomic.Int64

	mu      sync.Mutex
	open    map[*conn]struct{}
	retired time.Time // time of the last change of generation
}

// retireEvery is the shortest time between two changes of the generation.
const retireEvery = time.Second

// retire excludes all open connections from further use, because their server may be gone, or may have become a
// replica.
func (cs *conns) retire() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if now := time.Now(); now.Sub(cs.retired) > retireEvery {
		cs.retired = now
		cs.generation.Add(1)
	}
}

// close closes the chosen connections, including those that wait for an answer.
func (cs *conns) close(chosen func(*conn) bool) {
	var closing []*conn
	cs.mu.Lock()
	for c := range cs.open {
		if chosen(c) {
			closing = append(closing, c)
		}
	}
	cs.mu.Unlock()
	for _, c := range closing {
		_ = c.Close()
	}
}

// silent reports whether the connection has waited for an answer for longer than d.
func (c *conn) silent(d time.Duration) bool {
	return !c.idle.Load() && time.Since(time.Unix(0, c.wrote.Load())) > d
}

// dialError is a failure to connect.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// networkOf returns the network of an address: "unix" for a path, and otherwise "tcp".
func networkOf(addr string) string {
	if strings.HasPrefix(addr, "/") {
		return "unix"
	}
	return "tcp"
}

// dial connects. It is the DialCtxFn of the library.
func (cs *conns) dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectFor)
	defer cancel()
	generation := cs.generation.Load()
	plain, err := d.DialContext(ctx, networkOf(addr), addr)
	if err != nil {
		return nil, &dialError{err}
	}
	c := &conn{Conn: plain, conns: cs, generation: generation}
	c.wrote.Store(time.Now().UnixNano())
	if s, ok := plain.(syscall.Conn); ok {
		c.raw, _ = s.SyscallConn()
	}
	cs.mu.Lock()
	if cs.open == nil {
		cs.open = map[*conn]struct{}{}
	}
	cs.open[c] = struct{}{}
	cs.mu.Unlock()
	if config == nil {
		return newGuard(c), nil
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(addr)
	}
	encrypted := tls.Client(c, config)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, &dialError{err}
	}
	return newGuard(encrypted), nil
}

// errStale is the error of a write to a connection that must not be used any more. The write has sent nothing.
var errStale = errors.New("the connection broke while it was idle")

// conn is the TCP connection or Unix socket; TLS runs on top of it.
type conn struct {
	net.Conn
	conns      *conns
	generation int64
	raw        syscall.RawConn // nil if the connection cannot be inspected
	idle       atomic.Bool     // the last write was followed by a read, so probably no answer is expected
	wrote      atomic.Int64    // time of the last write, in ns since the Unix epoch
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.idle.Store(true)
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	c.wrote.Store(time.Now().UnixNano()) // before idle, so that a connection in use never looks silent
	if c.idle.Swap(false) && (c.generation != c.conns.generation.Load() || c.raw != nil && hungUp(c.raw)) {
		c.idle.Store(true)
		return 0, errStale
	}
	return c.Conn.Write(b)
}

func (c *conn) Close() error {
	c.conns.mu.Lock()
	delete(c.conns.open, c)
	c.conns.mu.Unlock()
	return c.Conn.Close()
}
