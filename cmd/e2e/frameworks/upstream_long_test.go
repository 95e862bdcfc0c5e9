//go:build long

package frameworks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// An upstream is a login server in a framework. It logs what it has read from each request, before it answers.
type upstream struct {
	name, addr string
	ignoreCase bool // /LOGIN is the same path as /login
	log        *os.File
	rest       []byte // an incomplete line at the end of the log
}

// A line is the report of an upstream about a request. A key of Took is the part that was read and the idiom that has
// read it: "body $_POST". An idiom that has read nothing has nil.
type line struct {
	Upstream, Trial string
	Took            map[string]*string
}

// A program runs one or more upstreams.
type program struct {
	dir      string   // below testdata/upstreams
	needs    string   // a program or a file; if it is missing, the upstreams are skipped
	command  []string // PORT stands for the port
	names    []string
	loose    bool // /LOGIN is the same path as /login
	together bool // one process runs all of them, and gets names and ports as UPSTREAMS
}

// Debian's Python, which finds Debian's packages, and the directories of the packages.
const (
	python   = "/usr/bin/python3"
	gems     = "/usr/share/rubygems-integration/all/specifications/"
	packages = "/usr/lib/python3/dist-packages/"
)

func puma(config string) []string {
	return []string{"puma", "-q", "-t", "1:4", "-b", "tcp://127.0.0.1:PORT", config}
}

var programs = []program{
	{dir: "ruby", needs: "puma", names: []string{"rack"}, command: puma("rack.ru")},
	{dir: "ruby", needs: gems + "sinatra-*", names: []string{"sinatra"}, command: puma("sinatra.ru")},
	{dir: "ruby", needs: gems + "railties-*", names: []string{"rails"}, command: puma("rails.ru")},
	{dir: "ruby", needs: "rackup", names: []string{"webrick"}, command: []string{"rackup", "-q", "-s", "webrick", "-o", "127.0.0.1", "-p", "PORT", "rack.ru"}},
	{dir: "php", needs: "php", names: []string{"php"}, command: []string{"php", "-S", "127.0.0.1:PORT", "index.php"}},
	{dir: "python", needs: packages + "bottle.py", names: []string{"bottle"}, command: []string{python, "bottle_app.py"}},
	{dir: "python", needs: packages + "flask", names: []string{"flask"}, command: []string{python, "flask_app.py"}},
	{dir: "python", needs: packages + "django", names: []string{"django"}, command: []string{python, "django_app.py"}},
	{dir: "python", needs: packages + "tornado", names: []string{"tornado"}, command: []string{python, "tornado_app.py"}},
	{dir: "python", needs: packages + "aiohttp", names: []string{"aiohttp"}, command: []string{python, "aiohttp_app.py"}},
	{dir: "python", needs: packages + "uvicorn", names: []string{"starlette"}, command: []string{python, "-m", "uvicorn", "--log-level", "critical", "--port", "PORT", "asgi:app"}},
	{dir: "python", needs: packages + "hypercorn", names: []string{"quart"}, command: []string{python, "-m", "hypercorn", "-b", "127.0.0.1:PORT", "quart_app:app"}},
	{dir: "python", needs: packages + "falcon", names: []string{"falcon"}, command: []string{python, "falcon_app.py"}},
	{dir: "python", needs: packages + "cherrypy", names: []string{"cherrypy"}, command: []string{python, "cherrypy_app.py"}},
	{dir: "perl", needs: "starman", names: []string{"plack"}, command: []string{"starman", "--workers", "2", "--listen", "127.0.0.1:PORT", "plack.psgi"}},
	{dir: "perl", needs: "/usr/share/perl5/Mojolicious.pm", names: []string{"mojolicious"}, command: []string{"perl", "mojo.pl"}},
	{dir: "java", needs: "/usr/share/java/tomcat10-catalina.jar", names: []string{"tomcat"}, command: []string{"./run", "Tomcat", "/usr/share/java/tomcat10-*.jar"}},
	{dir: "java", needs: "/usr/share/java/jetty9-servlet.jar", names: []string{"jetty"}, command: []string{"./run", "Jetty", "/usr/share/java/jetty9-*.jar /usr/share/java/servlet-api.jar"}},
	{dir: "go", needs: "go", names: []string{"go"}, command: []string{"go", "run", "main.go"}},
	{dir: "web", needs: "nginx", names: []string{"nginx"}, command: []string{"./run", "nginx"}},
	{dir: "web", needs: "/usr/sbin/apache2", names: []string{"apache"}, command: []string{"./run", "apache"}},
	{
		dir: "node", needs: "testdata/upstreams/node/node_modules", together: true, loose: true, command: []string{"node", "main.js"},
		names: []string{"node", "express", "express5", "express-simple", "express-any-json", "express-any-form", "express-text", "multer", "koa", "koa-loose", "fastify", "hapi", "polka", "formidable", "busboy"},
	},
}

// there reports whether the requirements of a program are installed.
func (p *program) there() bool {
	if strings.Contains(p.needs, "/") {
		found, err := filepath.Glob(p.needs)
		return err == nil && len(found) > 0
	}
	_, err := exec.LookPath(p.needs)
	return err == nil
}

// start starts the program, and returns its upstreams when all of them answer. It tries again if another process has
// taken a port.
func (p *program) start(t *testing.T) (all []*upstream) {
	t.Helper()
	var err error
	for range 3 {
		if all, err = p.try(t); err == nil {
			return all
		}
	}
	t.Fatalf("%s: %v", p.command, err)
	return nil
}

func (p *program) try(t *testing.T) (all []*upstream, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	var list []string
	for _, name := range p.names {
		u := &upstream{name: name, addr: testkit.Addr(t), ignoreCase: p.loose}
		list = append(list, name+"="+u.port())
		all = append(all, u)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	c := p.process(t, all[0], path, strings.Join(list, " "))
	c.Stdout, c.Stderr, c.WaitDelay = &output, &output, time.Second
	if err := c.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // and all processes that it has started
		<-ended
	})
	for _, u := range all {
		if err := u.ready(ended); err != nil {
			ended <- err
			return nil, fmt.Errorf("%w\n%s", err, &output)
		}
		if u.log, err = os.Open(path); err != nil {
			return nil, err
		}
		t.Cleanup(func() { u.log.Close() })
	}
	return all, nil
}

func (p *program) process(t *testing.T, first *upstream, log, list string) *exec.Cmd {
	args := make([]string, len(p.command))
	for i, arg := range p.command {
		args[i] = strings.ReplaceAll(arg, "PORT", first.port())
	}
	c := exec.Command(args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Dir = filepath.Join("testdata/upstreams", p.dir)
	c.Env = append(os.Environ(), "LOG="+log, "NAME="+first.name, "PORT="+first.port(), "UPSTREAMS="+list, "TEMP="+filepath.Dir(log),
		"PYTHONDONTWRITEBYTECODE=1", "NODE_ENV=production", "NODE_NO_WARNINGS=1")
	return c
}

func (u *upstream) port() string {
	_, port, _ := net.SplitHostPort(u.addr)
	return port
}

// ready waits until the upstream answers.
func (u *upstream) ready(ended <-chan error) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + u.addr + "/")
		if err == nil {
			defer resp.Body.Close()
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("%s has ended: %w", u.name, err)
		default:
		}
	}
	return errors.New(u.name + " does not answer")
}

// lines returns the lines that the upstream has logged since the last call.
func (u *upstream) lines() (all []line, err error) {
	more, err := io.ReadAll(u.log)
	if err != nil {
		return nil, err
	}
	u.rest = append(u.rest, more...)
	for {
		text, rest, whole := bytes.Cut(u.rest, []byte("\n"))
		if !whole {
			return all, nil
		}
		u.rest = rest
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		if l.Upstream == u.name {
			all = append(all, l)
		}
	}
}
