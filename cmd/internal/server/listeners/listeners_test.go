package listeners

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

// lines is a server of a protocol other than HTTP: it answers each line in upper case.
type lines struct {
	socket net.Listener
	drain  func() // called by Shutdown
}

func (s *lines) Serve(socket net.Listener) error {
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
				fmt.Fprintln(c, strings.ToUpper(in.Text()))
			}
		}()
	}
}

func (s *lines) Shutdown(context.Context) error {
	s.drain()
	return nil
}

func (s *lines) Close() error { return s.socket.Close() }

// broken is a server that fails.
type broken struct{ *lines }

func (broken) Serve(net.Listener) error { return io.ErrUnexpectedEOF }

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

func mustOpen(t *testing.T, ls *Set, name string) *Listener {
	t.Helper()
	l, err := ls.Open(name, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Listeners of any protocol drain at the same time. The last listener serves until the others have drained.
func TestListenersDrain(t *testing.T) {
	ls := &Set{Log: slog.New(slog.DiscardHandler)}
	admin := mustOpen(t, ls, "--admin")
	admin.ServeLast(HTTP(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") })}, admin.Socket))
	draining, drained := make(chan string), make(chan bool)
	for _, name := range []string{"--one", "--two"} {
		l := mustOpen(t, ls, name)
		l.Serve(&lines{l.Socket, func() {
			draining <- name
			<-drained
		}})
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, done := make(chan bool), make(chan error, 1)
	go func() { done <- ls.Run(ctx, func(on bool) { ready <- on }, Drain{Timeout: time.Minute}) }()
	if !<-ready {
		t.Fatal("the set is not ready at the start")
	}
	for _, l := range ls.all[1:] {
		if got := ask(t, l.Socket.Addr().String(), "hello"); got != "HELLO" {
			t.Errorf("%s answers %q", l.Name, got)
		}
	}
	stop()
	if <-ready {
		t.Error("the set is ready while it drains")
	}
	if a, b := <-draining, <-draining; a == b {
		t.Errorf("only %s drains", a)
	}
	response, err := http.Get("http://" + admin.Socket.Addr().String())
	if err != nil {
		t.Fatalf("the admin address while the others drain: %v", err)
	}
	response.Body.Close()
	close(drained)
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, l := range ls.all {
		if c, err := net.Dial("tcp", l.Socket.Addr().String()); err == nil {
			c.Close()
			t.Errorf("%s still accepts connections", l.Name)
		}
	}
}

// If a listener fails, the others end, and the error names the listener.
func TestListenersFail(t *testing.T) {
	ls := &Set{Log: slog.New(slog.DiscardHandler)}
	fails, other := mustOpen(t, ls, "--broken"), mustOpen(t, ls, "--other")
	fails.Serve(broken{&lines{socket: fails.Socket}})
	other.Serve(&lines{socket: other.Socket})
	err := ls.Run(t.Context(), func(bool) {}, Drain{Timeout: time.Minute})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "--broken") {
		t.Error(err)
	}
}
