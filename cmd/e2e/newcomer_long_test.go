//go:build long

package e2e

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// newcomer has the tree, an empty home and two terminals, and follows the README.
type newcomer struct {
	*testing.T
	dir   string
	addr  string // replaces localhost:8080, which another process may use
	env   []string
	begun *begun // the command that runs in the first terminal, or nil
}

// begun is a command that has not ended yet.
type begun struct {
	*exec.Cmd
	output bytes.Buffer // to be read after the command has ended
	ended  chan struct{}
}

// With a copy of the tree and an empty home, the commands of the README, run in order, print the output that it shows.
// The test uses the existing caches of Go, because filling them takes minutes and a network.
func TestLongNewcomer(t *testing.T) {
	t.Parallel()
	n := &newcomer{T: t, dir: t.TempDir(), addr: testkit.Addr(t)}
	const sources = `git ls-files --cached --others --exclude-standard | while read -r f; do [ ! -e "$f" ] || echo "$f"; done`
	pack := exec.Command("sh", "-c", sources+" | tar -cf - -T - | tar -C '"+n.dir+"' -xf -")
	pack.Dir = testkit.Root()
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	goCache, modCache, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	n.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GOCACHE=" + goCache, "GOMODCACHE=" + modCache,
		"SLUICE_PROXY=" + n.addr, "SLUICE_ADMIN=127.0.0.1:0",
		// curl shows no progress, as in a terminal.
		"CURL_HOME=" + filepath.Dir(testkit.File(t, ".curlrc", "silent\nshow-error\n")),
	}
	t.Cleanup(n.interrupt)

	// The source of the README's program contains its address.
	program := filepath.Join(n.dir, "examples", "middleware", "main.go")
	source, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, program, n.readdressed(string(source)))

	page, err := os.ReadFile(filepath.Join(n.dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	done := map[string]int{}
	for _, at := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllSubmatchIndex(page, -1) {
		before, language, text := string(page[:at[0]]), string(page[at[2]:at[3]]), n.readdressed(string(page[at[4]:at[5]]))
		done[language]++
		switch language {
		case "sh":
			for command := range strings.Lines(text) {
				n.first(strings.TrimSpace(command))
			}
		case "console":
			for _, example := range strings.Split("\n"+text, "\n$ ")[1:] {
				command, want, _ := strings.Cut(example, "\n")
				types(t, n.command(command), command, want)
			}
		case "yaml":
			name := regexp.MustCompile("\nSave this as `([^`]+)`:\n\n$").FindStringSubmatch(before)
			if name == nil {
				t.Fatalf("the README does not name the file for\n%s", text)
			}
			overwrite(t, filepath.Join(n.dir, name[1]), text)
		case "go": // TestReadmeCode checks that this is part of a program
		default:
			t.Errorf("no test checks a block of %q:\n%s", language, text)
		}
	}
	for _, language := range []string{"sh", "console", "yaml", "go"} {
		if done[language] == 0 {
			t.Errorf("the README has no block of %s", language)
		}
	}
}

func (n *newcomer) readdressed(text string) string {
	return strings.ReplaceAll(text, "localhost:8080", n.addr)
}

func (n *newcomer) command(line string) *exec.Cmd {
	c := exec.Command("bash", "-c", line)
	c.Dir, c.Env = n.dir, n.env
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as terminals do, for Ctrl-C
	return c
}

// first runs a command in the first terminal, after a Ctrl-C if another command runs there, and waits until the command
// has ended or listens.
func (n *newcomer) first(line string) {
	n.Helper()
	n.interrupt()
	b := &begun{Cmd: n.command(line), ended: make(chan struct{})}
	b.Stdout, b.Stderr = &b.output, &b.output
	if err := b.Start(); err != nil {
		n.Fatal(err)
	}
	n.begun = b
	go func() {
		_ = b.Wait()
		close(b.ended)
	}()
	testkit.Await(n.T, line+" has ended, or serves at "+n.addr, func() bool {
		select {
		case <-b.ended:
			return true
		default:
		}
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
	select {
	case <-b.ended:
		n.begun = nil
		if !b.ProcessState.Success() {
			n.Fatalf("%s: %v\n%s", line, b.ProcessState, &b.output)
		}
	default:
	}
}

// interrupt presses Ctrl-C in the first terminal, and waits until the command has ended.
func (n *newcomer) interrupt() {
	n.Helper()
	if n.begun == nil {
		return
	}
	signal := func(s syscall.Signal) { _ = syscall.Kill(-n.begun.Process.Pid, s) }
	signal(syscall.SIGINT)
	late := time.AfterFunc(patience, func() { signal(syscall.SIGKILL) })
	<-n.begun.ended
	if !late.Stop() {
		n.Errorf("%v after Ctrl-C, the command still runs:\n%s", patience, &n.begun.output)
	}
	n.begun = nil
}
