//go:build unix

package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/sluicehq/sluice/internal/testkit"
)

// serving is a gateway of its own process, before the sample API.
type serving struct{ proxy, admin string }

func serveSample(t *testing.T) serving {
	t.Helper()
	s := serving{"http://" + testkit.Addr(t), "http://" + testkit.Addr(t)}
	c := exec.Command("sluice", "serve", "--upstream", "sample", "--proxy", s.proxy[len("http://"):], "--admin", s.admin[len("http://"):])
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGINT)
		_ = c.Wait()
	})
	untilTrue(t, "the gateway is ready", func() bool {
		response, err := http.Get(s.admin + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return s
}

// screenOf is a program in a terminal.
type screenOf struct {
	t    *testing.T
	keys *os.File // the other end of its terminal
	own  *os.File // its terminal
	c    *exec.Cmd
	was  *term.State

	mu   sync.Mutex
	said bytes.Buffer
}

func inTerminal(t *testing.T, width, height uint16, args ...string) *screenOf {
	t.Helper()
	keys, own, err := pty.Open()
	if err != nil {
		t.Skip("there are no terminals here:", err)
	}
	s := &screenOf{t: t, keys: keys, own: own, c: exec.Command("sluice", args...)}
	s.resize(width, height)
	if s.was, err = term.GetState(int(own.Fd())); err != nil {
		t.Fatal(err)
	}
	s.c.Stdin, s.c.Stdout, s.c.Stderr = own, own, own
	s.c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.c.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			s.mu.Lock()
			s.said.Write(buffer[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = s.c.Process.Kill()
		_ = s.c.Wait()
		_ = own.Close()
		_ = keys.Close()
		reading.Wait()
	})
	return s
}

func (s *screenOf) resize(width, height uint16) {
	s.t.Helper()
	if err := pty.Setsize(s.keys, &pty.Winsize{Cols: width, Rows: height}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screenOf) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// frame is the last whole screen that was drawn.
func (s *screenOf) frame() string {
	frames := strings.Split(s.all(), "\x1b[H")
	for i := len(frames) - 1; i > 0; i-- {
		if whole, _, found := strings.Cut(frames[i], "\x1b[J"); found {
			return whole
		}
	}
	return ""
}

func (s *screenOf) eventually(what string, holds func(frame string) bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(s.frame()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("it never came that %s:\n%q", what, s.frame())
		}
	}
}

func (s *screenOf) shows(text string) {
	s.t.Helper()
	s.eventually("the screen shows "+text, func(frame string) bool { return strings.Contains(frame, text) })
}

func (s *screenOf) press(keys string) {
	s.t.Helper()
	if _, err := io.WriteString(s.keys, keys); err != nil {
		s.t.Fatal(err)
	}
}

// left waits for the end, behind which the terminal has to be as it was.
func (s *screenOf) left() {
	s.t.Helper()
	if err := s.c.Wait(); err != nil {
		s.t.Errorf("it ended with %v", err)
	}
	if now, err := term.GetState(int(s.own.Fd())); err != nil || *now != *s.was {
		s.t.Errorf("the terminal is not as it was: %v %v, was %v", now, err, s.was)
	}
	s.eventually("the screen is left", func(string) bool { return strings.HasSuffix(s.all(), leaveScreen) })
}

// The screen follows what happens and what is typed, and the terminal is as it was afterwards.
func TestTopInTerminal(t *testing.T) {
	g := serveSample(t)
	top := inTerminal(t, 140, 40, "top", "--admin-url", g.admin)
	top.shows("No request has come yet.")
	login := func(n int) {
		for range n {
			response, err := http.Post(g.proxy+"/auth/login", "application/x-www-form-urlencoded", strings.NewReader("username=alice&password=x"))
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
		}
	}
	login(9) // of which five pass
	refused := func(n int) func(string) bool {
		return func(frame string) bool {
			for line := range strings.SplitSeq(frame, "\r\n") {
				if f := strings.Fields(line); len(f) > 3 && strings.Contains(f[0], "refused") && f[3] == strconv.Itoa(n) {
					return true
				}
			}
			return false
		}
	}
	top.eventually("four are refused", refused(4))
	top.shows("login-address         127.0.0.1")
	login(3)
	top.eventually("seven are refused", refused(7))

	top.press("s")
	top.shows("s sort: refused")
	top.press("\x1b[C")
	top.shows("REFUSED MOST in the last day, all rules")
	top.press("b")
	top.shows("ASKED MOST in the last day, all rules")
	top.press("r")
	top.shows("in the last day, rule login-address")
	top.press("\x1b[A\x1b[D")
	top.shows("ASKED MOST in the last hour, all rules")

	top.resize(50, 10)
	top.eventually("no more lines are drawn than fit", func(frame string) bool {
		return frame != "" && strings.Count(frame, "\r\n") == 9
	})
	top.press("q")
	top.left()
}

func TestTopEndsBySignal(t *testing.T) {
	for _, end := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		top := inTerminal(t, 80, 24, "top", "--admin-url", "http://"+testkit.Addr(t))
		top.shows("nothing listens there") // and may do so later
		if err := top.c.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		top.left()
	}
	top := inTerminal(t, 80, 24, "top", "--admin-url", "http://"+testkit.Addr(t))
	top.shows("q quit")
	top.press("\x03") // control-C is a key here
	top.left()
}
