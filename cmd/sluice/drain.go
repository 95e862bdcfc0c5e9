package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// unread knows the connections whose request has not come to the handler yet: http.Server.Shutdown
// closes them without an answer.
type unread struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (u *unread) note(c net.Conn, waits bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if waits {
		u.conns[c] = struct{}{}
	} else {
		delete(u.conns, c)
	}
}

func (u *unread) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns) > 0
}

type connKey struct{}

// silentPatience is how long a drain waits for the first byte of a client that has connected. It waits for
// no more than half of the time that there is, so that the requests under way have the rest.
const silentPatience = 5 * time.Second

// drainHTTP makes l serve by s, and answer whoever has connected when it drains.
func (l *listener) drainHTTP(s *http.Server) {
	u := &unread{conns: make(map[net.Conn]struct{})}
	within, handler, changed := s.ConnContext, s.Handler, s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		u.note(c, state == http.StateNew || state == http.StateActive)
		if changed != nil {
			changed(c, state)
		}
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if within != nil {
			ctx = within(ctx, c)
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
			u.note(c, false)
		}
		handler.ServeHTTP(w, r)
	})
	l.http(s)
	serve, accepted := l.serve, make(chan struct{})
	l.serve = func(socket net.Listener) error {
		defer close(accepted)
		return serve(socket)
	}
	l.drain = func(ctx context.Context) error {
		l.socket.Close()
		<-accepted
		s.SetKeepAlivesEnabled(false)
		patience := silentPatience
		if end, ok := ctx.Deadline(); ok {
			patience = min(patience, time.Until(end)/2)
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for u.any() && wait.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return s.Shutdown(ctx)
	}
}
