package listeners

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// HTTP returns a server for a socket. During a shutdown, it still answers clients that have connected, if their request
// arrives within silentTimeout. [http.Server.Shutdown] alone would close connections whose request has not been read.
func HTTP(s *http.Server, socket net.Listener) Server {
	h := &httpServer{Server: s, socket: socket, accepted: make(chan struct{}), conns: make(map[net.Conn]struct{})}
	connContext, handler, connState := s.ConnContext, s.Handler, s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		h.note(c, state == http.StateNew || state == http.StateActive)
		if connState != nil {
			connState(c, state)
		}
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if connContext != nil {
			ctx = connContext(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			h.note(c, false)
		}
		handler.ServeHTTP(w, r)
	})
	return h
}

// httpServer tracks new connections, and those whose next request has begun to arrive but has not reached the
// handler.
type httpServer struct {
	*http.Server
	socket   net.Listener
	accepted chan struct{} // closed when all connections have been accepted

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

type connKey struct{}

func (h *httpServer) note(c net.Conn, waits bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if waits {
		h.conns[c] = struct{}{}
	} else {
		delete(h.conns, c)
	}
}

func (h *httpServer) anyWaits() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns) > 0
}

func (h *httpServer) Serve(socket net.Listener) error {
	defer close(h.accepted)
	if err := h.Server.Serve(socket); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// silentTimeout bounds the time for which Shutdown waits for the requests of the tracked connections. Shutdown waits for
// at most half of the time to its deadline, so that requests in flight have the rest.
const silentTimeout = 5 * time.Second

func (h *httpServer) Shutdown(ctx context.Context) error {
	h.socket.Close()
	<-h.accepted
	h.SetKeepAlivesEnabled(false)
	timeout := silentTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	wait, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for h.anyWaits() && wait.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return h.Server.Shutdown(ctx)
}
