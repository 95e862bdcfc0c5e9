//go:build unix

package cli

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/sluicehq/sluice/internal/testkit"
)

// serving has the URLs of a gateway in its own process, in front of the sample API.
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
	testkit.Await(t, "the gateway is ready", func() bool {
		response, err := http.Get(s.admin + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return s
}

// screenOf is a program that runs in a terminal.
type screenOf struct {
	t    *testing.T
	keys *os.File // the controlling side of the terminal
	own  *os.File // the terminal of the program
	c    *exec.Cmd
	was  *term.State

	mu   sync.Mutex
	said bytes.Buffer
}

func inTerminal(t *testing.T, width, height uint16, args ...string) *screenOf {
	t.Helper()
	keys, own, err := pty.Open()
	if err != nil {
		t.Skip("no terminals on this system:", err)
	}
	s := &screenOf{t: t, keys: keys, own: own, c: exec.Command("sluice", args...)}
	if err := pty.Setsize(keys, &pty.Winsize{Cols: width, Rows: height}); err != nil {
		t.Fatal(err)
	}
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

func (s *screenOf) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// frame returns the last complete screen. The last screen in the output may be incomplete, so it is the one before.
func (s *screenOf) frame() string {
	frames := strings.Split(s.all(), "\x1b[H\x1b[2J")
	return frames[max(0, len(frames)-2)]
}

func (s *screenOf) eventually(what string, holds func(frame string) bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(s.frame()); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("gave up after a minute waiting until %s:\n%q", what, s.frame())
		}
	}
}

func (s *screenOf) shows(text string) {
	s.t.Helper()
	s.eventually("the screen shows "+text, func(frame string) bool { return strings.Contains(frame, text) })
}

// left waits for the program to exit and checks that the terminal is restored.
func (s *screenOf) left() {
	s.t.Helper()
	if err := s.c.Wait(); err != nil {
		s.t.Errorf("the program failed: %v", err)
	}
	if now, err := term.GetState(int(s.own.Fd())); err != nil || *now != *s.was {
		s.t.Errorf("the terminal is not restored: %v %v, want %v", now, err, s.was)
	}
	s.eventually("the alternate screen is closed", func(string) bool { return strings.HasSuffix(s.all(), "\x1b[?25h\x1b[?1049l") })
}

// The screen follows the traffic, and the terminal is restored afterwards.
func TestTopInTerminal(t *testing.T) {
	t.Parallel()
	g := serveSample(t)
	top := inTerminal(t, 140, 40, "top", "--admin-url", g.admin)
	top.shows("No request has come yet.")
	for range 9 { // five are allowed
		response, err := http.Post(g.proxy+"/auth/login", "application/x-www-form-urlencoded", strings.NewReader("username=alice&password=x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	refused := regexp.MustCompile(`(?m)^denied +\S+ +\d+ +4 +4`)
	top.eventually("four requests are denied", refused.MatchString)
	top.shows("127.0.0.1")
	if err := top.c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	top.left()
}

// The command keeps retrying an unavailable gateway until a signal ends the program.
func TestTopEndsBySignal(t *testing.T) {
	t.Parallel()
	top := inTerminal(t, 80, 24, "top", "--admin-url", "http://"+testkit.Addr(t))
	top.shows("connection")
	if err := top.c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	top.left()
}
