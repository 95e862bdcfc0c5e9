// Package sockets has a server for protocols over TCP such as those of packages resp and spoe. Each connection has
// a goroutine. The server drains all connections together.
package sockets

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Conn is a connection of a protocol.
type Conn interface {
	// Serve answers until the connection ends. The Server closes the connection afterwards.
	Serve()
	// Drain makes Serve return when everything that has arrived is answered. It is called before or during Serve.
	Drain()
}

// Server serves the connections of one listener.
type Server struct {
	open    func(net.Conn) Conn
	log     *slog.Logger
	running sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc

	mu       sync.Mutex
	closed   bool
	listener net.Listener
	conns    map[net.Conn]Conn
}

// New returns a server. The function open returns the Conn for a connection, and must not block.
func New(log *slog.Logger, open func(net.Conn) Conn) *Server {
	s := &Server{open: open, log: log, conns: make(map[net.Conn]Conn)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Context returns a context that Close cancels.
func (s *Server) Context() context.Context { return s.ctx }

// Serve serves the connections to l. After Shutdown or Close, it returns nil. Call it only once.
func (s *Server) Serve(l net.Listener) error {
	if !s.listen(l) {
		return nil
	}
	for pause := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(c)
		case s.ended():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // usually too many open files; retry, because some will be closed
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("cannot accept a connection", "error", err, "again_in", pause)
			time.Sleep(pause)
		}
	}
}

// listen registers l for Shutdown and Close. It returns false if one of them was already called.
func (s *Server) listen(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.Close()
		return false
	}
	s.listener = l
	return true
}

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) start(socket net.Conn) {
	c := s.open(socket)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		socket.Close()
		return
	}
	s.conns[socket] = c
	s.running.Go(func() {
		defer s.forget(socket)
		defer s.Rescue(socket)
		c.Serve()
	})
}

func (s *Server) forget(socket net.Conn) {
	socket.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, socket)
}

// Rescue, if deferred, recovers a panic, logs it, and closes the connection.
func (s *Server) Rescue(socket net.Conn) {
	if p := recover(); p != nil {
		s.log.Error("connection closed after a panic: this is a bug", "panic", p, "stack", string(debug.Stack()))
		socket.Close()
	}
}

// Shutdown stops accepting connections, drains the open ones, and waits until all are closed. If ctx ends first, it
// returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(func(_ net.Conn, c Conn) { c.Drain() })
	done := make(chan struct{})
	go func() { // returns when the last connection ends; Close ends all connections
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes all connections, and waits for their goroutines.
func (s *Server) Close() error {
	s.cancel()
	s.stop(func(socket net.Conn, _ Conn) { socket.Close() })
	s.running.Wait()
	return nil
}

// stop stops accepting connections, and calls visit for every open connection.
func (s *Server) stop(visit func(net.Conn, Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.listener != nil {
		s.listener.Close()
	}
	for socket, c := range s.conns {
		visit(socket, c)
	}
}

// farewell bounds the time of [Linger].
const farewell = 500 * time.Millisecond

// Linger gives the client time to read the last data. If a connection is closed while the client is still sending,
// the operating system may discard data that the client has not read.
func Linger(socket net.Conn) {
	half, ok := socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = socket.SetReadDeadline(time.Now().Add(farewell))
	_, _ = io.Copy(io.Discard, socket)
}
