package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// listener is one address that is served: a door, the admin address, the sample API.
type listener struct {
	name   string // the flag that sets the address, or what it is
	socket net.Listener
	// serve answers until drain or close ends it; its error is nil then.
	serve func(net.Listener) error
	// drain takes nothing new and lets what has begun end. If it is nil, the listener serves
	// until all others have drained.
	drain func(context.Context) error
	last  bool // it serves until the others have drained, and drains then
	// close ends what is left, at once.
	close func() error
}

// listeners is everything that listens, in the order in which it begins to serve.
type listeners struct {
	log       *slog.Logger
	all       []*listener
	inherited []net.Listener // from systemd, and not taken by anybody yet
}

// open adds a listener on addr, that somebody has to make serve. When it fails, it closes
// what was opened before.
func (ls *listeners) open(name string, addr address) (*listener, error) {
	socket, err := ls.socket(addr)
	if err == nil {
		l := &listener{name: name, socket: socket}
		ls.all = append(ls.all, l)
		return l, nil
	}
	ls.close()
	mend := "give another address"
	if errors.Is(err, syscall.EADDRINUSE) {
		mend = "stop what listens there, or give another address"
	}
	return nil, fmt.Errorf("%s: %w: %s", name, err, mend)
}

// socket returns the inherited socket for addr, or opens one.
func (ls *listeners) socket(addr address) (net.Listener, error) {
	for i, s := range ls.inherited {
		if listensAt(s, addr) {
			ls.inherited = slices.Delete(ls.inherited, i, i+1)
			return s, nil
		}
	}
	return net.Listen("tcp", string(addr))
}

// untaken is the error for a socket of systemd that nobody serves: its clients would wait for ever.
func (ls *listeners) untaken() error {
	if len(ls.inherited) == 0 {
		return nil
	}
	addr := ls.inherited[0].Addr()
	ls.close()
	return fmt.Errorf("systemd has passed a socket at %v, where nothing is to listen: write the address of its ListenStream in --proxy, --admin or the flag of a door", addr)
}

// close closes what nobody will serve.
func (ls *listeners) close() {
	for _, s := range ls.inherited {
		s.Close()
	}
	for _, l := range ls.all {
		l.socket.Close()
	}
}

// http makes s serve l.
func (l *listener) http(s *http.Server) {
	l.serve = func(socket net.Listener) error {
		if err := s.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
	l.close = s.Close
}

// addresses returns name and address of each, for a log.
func (ls *listeners) addresses() (attributes []any) {
	for _, l := range ls.all {
		attributes = append(attributes, strings.TrimPrefix(l.name, "--"), l.socket.Addr().String())
	}
	return attributes
}

// run serves until ctx ends, and then drains, or until a listener fails. It tells ready when
// it begins, and when it will stop to take new requests: it goes on taking them for as long as
// delay says, so that whoever sends them hears of it first.
func (ls *listeners) run(ctx context.Context, ready func(bool), delay, patience time.Duration) error {
	var running sync.WaitGroup
	defer running.Wait()
	failed := make(chan error, len(ls.all))
	for _, l := range ls.all {
		defer func() { _ = l.close() }()
		running.Go(func() {
			if err := l.serve(l.socket); err != nil {
				failed <- fmt.Errorf("%s: %w", l.name, err)
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
	if delay > 0 {
		ls.log.Info("not ready: going on until the drain delay is over", "for", delay)
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(delay):
	}
	ls.drain(patience)
	return nil
}

// drain lets what has begun end, within bounds.
func (ls *listeners) drain(patience time.Duration) {
	ls.log.Info("draining", "at_most", patience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, last := range []bool{false, true} {
		var draining sync.WaitGroup
		for _, l := range ls.all {
			if l.drain == nil || l.last != last {
				continue
			}
			draining.Go(func() {
				if err := l.drain(ctx); err != nil {
					ls.log.Warn("requests were cut off", "listener", l.name, "after", patience)
				}
			})
		}
		draining.Wait()
	}
	ls.log.Info("bye")
}
