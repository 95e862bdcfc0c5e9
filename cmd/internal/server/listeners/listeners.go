// Package listeners opens the addresses of a gateway, serves them together, and drains them together at the end of
// the process. It takes over sockets from systemd, and reports readiness to systemd. Package server, which imports
// this package, provides the servers.
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
	// Serve answers connections. It returns nil after Shutdown or Close.
	Serve(net.Listener) error
	// Shutdown stops accepting requests, and returns when the requests in flight have finished. A server that must
	// serve until all others have finished may return nil at once and continue to serve.
	Shutdown(context.Context) error
	// Close cuts off the remaining requests.
	Close() error
}

// Listener is one address with its server.
type Listener struct {
	Name   string       // the flag that sets the address
	Socket net.Listener // may be wrapped before Serve

	server Server
	last   bool
}

// Serve sets the server of the address.
func (l *Listener) Serve(s Server) { l.server = s }

// ServeLast sets the server of the address like Serve. This server drains after all others have drained.
func (l *Listener) ServeLast(s Server) { l.server, l.last = s, true }

// Set has all listeners, in the order in which they were opened.
type Set struct {
	Log *slog.Logger

	all       []*Listener
	inherited []net.Listener // sockets from systemd that Open has not used yet
}

// New returns a set without listeners. It takes over the sockets that systemd passes to the process.
func New(log *slog.Logger) (*Set, error) {
	inherited, err := inheritedSockets()
	if err != nil {
		return nil, err
	}
	return &Set{Log: log, inherited: inherited}, nil
}

// Open listens on an address. name is the flag that sets the address. The caller must set a server for the
// listener.
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

// CheckInherited returns an error if systemd has passed a socket that Open has not used, because its clients would
// wait forever.
func (s *Set) CheckInherited() error {
	if len(s.inherited) == 0 {
		return nil
	}
	return fmt.Errorf("systemd passed a socket for %v, but no flag has this address: set --proxy, --admin or the flag of an integration to the socket's ListenStream", s.inherited[0].Addr())
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

// Addr returns the address of the listener with the given name, or nil.
func (s *Set) Addr(name string) net.Addr {
	for _, l := range s.all {
		if l.Name == name {
			return l.Socket.Addr()
		}
	}
	return nil
}

// LogAttributes returns the name and the address of each listener, for the log.
func (s *Set) LogAttributes() (attributes []any) {
	for _, l := range s.all {
		attributes = append(attributes, strings.TrimPrefix(l.Name, "--"), l.Socket.Addr().String())
	}
	return attributes
}

// Drain configures how a set drains.
type Drain struct {
	Delay   time.Duration // how long to keep serving after the set is no longer ready
	Timeout time.Duration // the maximum wait for requests to finish
}

// Run serves until ctx ends, and then drains. If a listener fails, Run returns the error. It calls the function
// ready with true at the start, and with false when load balancers should stop sending requests.
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
