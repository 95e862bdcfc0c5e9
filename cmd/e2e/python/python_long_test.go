//go:build long

package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Other frameworks and servers send the gateway's responses, too, and so do applications without a framework.
func TestLongSameAsGateway(t *testing.T) {
	t.Parallel()
	allSame(t, []application{
		{"django", "waitress", "django_app:app", true},
		{"starlette", "hypercorn", "starlette_app:app", true},
		{"django", "uvicorn", "django_app:asgi", true},
		{"wsgiref", "wsgiref", "wsgi_app:app", false},
	})
}

// The package is fully typed, also for the oldest supported Python.
func TestLongTyped(t *testing.T) {
	t.Parallel()
	c := exec.Command(testkit.Program(t, "mypy"), "--cache-dir", t.TempDir(), "sluice")
	c.Dir = filepath.Join(testkit.Root(), "clients", "python")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// newcomer is a directory with its own virtual environment.
type newcomer struct {
	*testing.T
	dir string
}

func (n newcomer) run(command string) string {
	n.Helper()
	c := exec.Command("bash", "-euc", command)
	c.Dir, c.Env = n.dir, append(testkit.Environ(), "PATH="+filepath.Join(n.dir, "env", "bin")+":"+os.Getenv("PATH"), "no_proxy=127.0.0.1", "PIP_DISABLE_PIP_VERSION_CHECK=1")
	out, err := c.CombinedOutput()
	if err != nil {
		n.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// block returns the first code block of a language in docs/python.md with a text in it.
func block(t *testing.T, language, with string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "python.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], with) {
			return m[1]
		}
	}
	t.Fatalf("docs/python.md has no %s with %q", language, with)
	return ""
}

// A newcomer installs the package, copies the program of the documentation, and gets a 429 within five minutes. The
// package has the metadata that a registry requires.
func TestLongNewcomer(t *testing.T) {
	t.Parallel()
	needs(t, "fastapi", "uvicorn", "venv", "setuptools", "wheel")
	began := time.Now()
	n := newcomer{t, t.TempDir()}
	n.run(interpreter + " -m venv --system-site-packages env")
	n.run("cp -r '" + filepath.Join(testkit.Root(), "clients", "python") + "' package")
	n.run("pip install --no-index --no-build-isolation ./package")
	source := block(t, "python", "app = FastAPI()")
	lines := 0
	for line := range strings.Lines(source) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	if lines > 10 {
		t.Errorf("the program has %d lines", lines)
	}
	g := testkit.Serve(t, "--policy", "example", "--upstream", "sample", "--check", "127.0.0.1:0")
	if err := os.WriteFile(filepath.Join(n.dir, "app.py"), []byte(strings.ReplaceAll(source, "localhost:8081", g.Check)), 0o644); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(testkit.Port(t))
	commands := strings.Split(strings.ReplaceAll(block(t, "sh", "uvicorn app:app"), "8000", port), "\n")
	server := exec.Command("env/bin/python", append([]string{"-m"}, strings.Fields(commands[0])...)...)
	server.Dir = n.dir
	testkit.Launch(t, server, "127.0.0.1:"+port)
	for status := range strings.FieldsSeq(n.run(strings.ReplaceAll(commands[1], "localhost", "127.0.0.1"))) {
		if status != "200" && status != "429" {
			t.Errorf("a response has status %s", status)
		}
	}
	// On a machine under load, the requests above may be slower than the limit.
	testkit.Await(t, "the first 429", func() bool {
		var wg sync.WaitGroup
		var refused atomic.Bool
		for range 30 {
			wg.Go(func() {
				if do(t, "GET", "http://127.0.0.1:"+port+"/api/data", "", "X-API-Key: k-1").status == 429 {
					refused.Store(true)
				}
			})
		}
		wg.Wait()
		return refused.Load()
	})
	if took := time.Since(began); took > 5*time.Minute {
		t.Errorf("it took %v", took)
	}
	metadata := n.run("cat env/lib/python3*/site-packages/sluice_client-*.dist-info/METADATA")
	for _, line := range []string{"Name: sluice-client", "License: Apache-2.0", "Requires-Python: >=3.9", "License-File: LICENSE", "Description-Content-Type: text/markdown", "Classifier: Typing :: Typed"} {
		if !strings.Contains(metadata, line+"\n") {
			t.Errorf("the metadata lacks %q", line)
		}
	}
	if strings.Contains(metadata, "Requires-Dist") {
		t.Errorf("the package has dependencies:\n%s", metadata)
	}
	n.run("ls env/lib/python3*/site-packages/sluice/py.typed")
}

// A permit is held for as long as the request lasts, even if that is longer than the service keeps a permit that is
// not renewed.
func TestLongHeld(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, app func(...string) string) {
		g, url, held := hold(t, app)
		for end := time.Now().Add(25 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if answer := peek(t, g); !strings.Contains(answer, `"allowed":false`) {
				t.Fatalf("the permit is free: %s", answer)
			}
		}
		letGo(url)
		<-held
		if answer := peek(t, g); !strings.Contains(answer, `"allowed":true`) {
			t.Errorf("the permit is not free: %s", answer)
		}
	})
}

// Every unit is charged once, however checks are batched: of many concurrent checks, with invalid ones among them,
// exactly as many pass as the limit has units.
func TestLongExact(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"asyncio", "threads", "forks"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			g := service(t, "version: 1\nrules: [{name: jobs, key: [api_key], limit: 500/day}]\n")
			out, err := python(t, "exact.py", way, "http://"+g.Check).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != "500 passed, 1500 refused, 40 wrong" {
				t.Errorf("%v\n%s", err, got)
			}
		})
	}
}
