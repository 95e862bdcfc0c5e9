// Package listeners opens the addresses of a gateway, serves them together, and drains them together at the end of
// the process. It takes sockets from systemd and reports readiness to it. Package server, which imports it, passes
// in the servers; this package itself knows only HTTP.
package listeners

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server answers the connections of a listener.
type Server interface {
	// Serve returns nil after Shutdown or Close.
	Serve(net.Listener) error
	// Shutdown stops accepting requests, and returns when those under way have finished. A server that is to serve
	// until all others have finished returns nil at once and goes on serving.
	Shutdown(context.Context) error
	// Close cuts off the requests that are left.
	Close() error
}

// Listener is one address.
type Listener struct {
	Name   string       // the flag that sets the address
	Socket net.Listener // may be wrapped before Serve

	server Server
	last   bool
}

// Serve sets the server of the address.
func (l *Listener) Serve(s Server) { l.server = s }

// ServeLast sets the server of the address, like Serve. The server serves until all others have drained, and then
// drains itself.
func (l *Listener) ServeLast(s Server) { l.server, l.last = s, true }

// Set has all listeners, in the order in which they were opened.
type Set struct {
	Log *slog.Logger

	all       []*Listener
	inherited []net.Listener // from systemd, not opened yet
}

// New returns a set without listeners. The set takes the sockets that systemd passes to the process.
func New(log *slog.Logger) (*Set, error) {
	inherited, err := inheritedSockets()
	if err != nil {
		return nil, err
	}
	return &Set{Log: log, inherited: inherited}, nil
}

// Open listens at an address. The caller has to set a server for the listener. The name is the flag that sets the
// address.
func (s *Set) Open(name, addr string) (*Listener, error) {
	socket, err := s.socket(addr)
	if err == nil {
		l := &Listener{Name: name, Socket: socket}
		s.all = append(s.all, l)
		return l, nil
	}
	hint := "give another address"
	if errors.Is(err, syscall.EADDRINUSE) {
		hint = "stop the program that listens there, or give another address"
	}
	return nil, fmt.Errorf("%s: %w: %s", name, err, hint)
}

// socket returns the inherited socket for addr, or opens one.
func (s *Set) socket(addr string) (net.Listener, error) {
	for i, socket := range s.inherited {
		if listensAt(socket, addr) {
			s.inherited = slices.Delete(s.inherited, i, i+1)
			return socket, nil
		}
	}
	return net.Listen("tcp", addr)
}

// CheckInherited returns an error if systemd has passed a socket that was not opened: its clients would wait
// forever.
func (s *Set) CheckInherited() error {
	if len(s.inherited) == 0 {
		return nil
	}
	return fmt.Errorf("systemd passed a socket at %v, which no flag names: set --proxy, --admin or the flag of an integration to its ListenStream", s.inherited[0].Addr())
}

// Close closes the sockets. It is for callers that do not call Run.
func (s *Set) Close() {
	for _, socket := range s.inherited {
		socket.Close()
	}
	for _, l := range s.all {
		l.Socket.Close()
	}
}

// Addr returns the address of the listener with a name, or nil.
func (s *Set) Addr(name string) net.Addr {
	for _, l := range s.all {
		if l.Name == name {
			return l.Socket.Addr()
		}
	}
	return nil
}

// LogAttributes returns name and address of each listener.
func (s *Set) LogAttributes() (attributes []any) {
	for _, l := range s.all {
		attributes = append(attributes, strings.TrimPrefix(l.Name, "--"), l.Socket.Addr().String())
	}
	return attributes
}

// Drain configures how a set drains.
type Drain struct {
	Delay   time.Duration // how long it still serves after it is not ready
	Timeout time.Duration // the longest wait for requests to finish
}

// Run serves until a listener fails, and returns its error, or until ctx ends, and then drains. It calls ready with
// true at the start, and with false when load balancers should send no more requests.
func (s *Set) Run(ctx context.Context, ready func(bool), drain Drain) error {
	var running sync.WaitGroup
	defer running.Wait()
	failed := make(chan error, len(s.all))
	for _, l := range s.all {
		defer func() { _ = l.server.Close() }()
		running.Go(func() {
			if err := l.server.Serve(l.Socket); err != nil {
				failed <- fmt.Errorf("%s: %w", l.Name, err)
			}
		})
	}
	ready(true)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ready(false)
	if drain.Delay > 0 {
		s.Log.Info("not ready: still serving until the drain delay is over", "for", drain.Delay)
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(drain.Delay):
	}
	s.drain(drain.Timeout)
	return nil
}

func (s *Set) drain(timeout time.Duration) {
	s.Log.Info("draining", "at_most", timeout)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for _, last := range []bool{false, true} {
		var draining sync.WaitGroup
		for _, l := range s.all {
			if l.last != last {
				continue
			}
			draining.Go(func() {
				if err := l.server.Shutdown(ctx); err != nil {
					s.Log.Warn("requests were cut off", "listener", l.Name, "after", timeout)
				}
			})
		}
		draining.Wait()
	}
	s.Log.Info("bye")
}
