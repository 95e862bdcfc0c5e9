package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// lines is a protocol that is not HTTP: it answers each line with what reply makes of it.
func lines(l *listener, reply func(string) string) {
	l.serve = func(socket net.Listener) error {
		for {
			c, err := socket.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			} else if err != nil {
				return err
			}
			go func() {
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					fmt.Fprintln(c, reply(in.Text()))
				}
			}()
		}
	}
	l.close = l.socket.Close
}

func ask(t *testing.T, addr, line string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, line)
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(answer)
}

func mustOpen(t *testing.T, ls *listeners, name string) *listener {
	t.Helper()
	l, err := ls.open(name, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Doors drain at the same time, whatever they speak; what cannot drain serves until they have.
func TestListenersDrain(t *testing.T) {
	ls := &listeners{log: slog.New(slog.DiscardHandler)}
	admin := mustOpen(t, ls, "--admin")
	admin.http(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })})
	draining, drained := make(chan string), make(chan bool)
	for _, name := range []string{"--one", "--two"} {
		l := mustOpen(t, ls, name)
		lines(l, strings.ToUpper)
		l.drain = func(context.Context) error {
			draining <- name
			<-drained
			return nil
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan bool), make(chan error, 1)
	go func() { done <- ls.run(ctx, func(on bool) { ready <- on }, 0, time.Minute) }()
	if !<-ready {
		t.Fatal("it begins with being not ready")
	}
	for _, l := range ls.all[1:] {
		if got := ask(t, l.socket.Addr().String(), "hello"); got != "HELLO" {
			t.Errorf("%s says %q", l.name, got)
		}
	}
	stop()
	if <-ready {
		t.Error("it is ready while it drains")
	}
	if a, b := <-draining, <-draining; a == b {
		t.Errorf("only %s drains", a)
	}
	response, err := http.Get("http://" + admin.socket.Addr().String())
	if err != nil {
		t.Fatalf("the admin address while the others drain: %v", err)
	}
	response.Body.Close()
	close(drained)
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, l := range ls.all {
		if c, err := net.Dial("tcp", l.socket.Addr().String()); err == nil {
			c.Close()
			t.Errorf("%s is still there", l.name)
		}
	}
}

// A listener that fails ends the others, and is named.
func TestListenersFail(t *testing.T) {
	ls := &listeners{log: slog.New(slog.DiscardHandler)}
	broken, other := mustOpen(t, ls, "--broken"), mustOpen(t, ls, "--other")
	lines(other, strings.ToUpper)
	broken.serve = func(net.Listener) error { return io.ErrUnexpectedEOF }
	broken.close = broken.socket.Close
	err := ls.run(t.Context(), func(bool) {}, 0, time.Minute)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "--broken") {
		t.Error(err)
	}
}
