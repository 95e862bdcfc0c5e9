package resp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// Config says what a [Server] asks, and how patient it is.
type Config struct {
	Engine *policy.Engine
	// Authorize returns an error unless a token lets its bearer in, who has an address with a port; nil
	// lets everybody in. Of an error that has a method RetrySeconds, clients get the text.
	Authorize func(from, token string) error
	// Patience is how long a client may take for its first command, for AUTH where it has to, and
	// for the rest of a command that has begun. Writes are bounded by the listener.
	Patience time.Duration
	// Idle is how long a client may then be silent: this long, or up to twice as long.
	Idle time.Duration
	Log  *slog.Logger
}

// Server answers clients of Redis: one goroutine for each connection.
type Server struct {
	Config
	limits  limits
	batches sync.Pool // of *batch

	ctx      context.Context // of all that is asked
	cancel   context.CancelFunc
	draining atomic.Int64 // until when clients are heard, in nanoseconds since 1970; 0: as long as they like
	last     atomic.Int64 // the number of the newest connection
	running  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	listener net.Listener
	open     map[*conn]struct{}
}

// New returns a server.
func New(c Config) *Server {
	s := &Server{Config: c, open: make(map[*conn]struct{})}
	s.limits.engine = c.Engine
	s.batches.New = func() any { return new(batch) }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve answers on the connections to l until Shutdown or Close; its error is nil then.
func (s *Server) Serve(l net.Listener) error {
	if !s.listen(l) {
		return nil
	}
	for pause := time.Duration(0); ; {
		socket, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.start(socket)
		case s.ended():
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		default: // mostly, too many files are open: somebody will leave
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.Log.Warn("a connection was not accepted", "error", err, "again_in", pause)
			s.wait(pause)
		}
	}
}

// listen notes what Shutdown and Close have to close, unless they were called before.
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

func (s *Server) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

func (s *Server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Server) start(socket net.Conn) {
	c := newConn(s, socket)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		socket.Close()
		return
	}
	s.open[c] = struct{}{}
	s.running.Go(func() { s.run(c) })
}

func (s *Server) run(c *conn) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("a connection was given up after a panic: this is a bug", "panic", p, "stack", string(debug.Stack()))
		}
		c.socket.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, c)
	}()
	c.serve()
}

// drainFor is how long clients may go on to send, once nothing new is taken: what is under way to
// us is answered.
const drainFor = 100 * time.Millisecond

// Shutdown takes no more connections, answers what has been asked, and waits until all connections
// are closed. It returns the error of ctx if that ends first.
func (s *Server) Shutdown(ctx context.Context) error {
	until := time.Now().Add(drainFor)
	s.draining.Store(until.UnixNano())
	s.stop(func(c *conn) { _ = c.socket.SetReadDeadline(until) })
	done := make(chan struct{})
	go func() { // ends with the last connection, which Close ends
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
	s.stop(func(c *conn) { c.socket.Close() })
	s.running.Wait()
	return nil
}

// stop takes no more connections, and does so with those that there are.
func (s *Server) stop(each func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.listener != nil {
		s.listener.Close()
	}
	for c := range s.open {
		each(c)
	}
}

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
