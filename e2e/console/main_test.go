// Package console has a real Chromium look at the dashboard of the real program under traffic.
package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/sluicehq/sluice/internal/testkit"
)

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = 5 * time.Minute

var (
	binary   string          // the program
	chromium context.Context // one browser for all tests; nil if the machine has none
)

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sluice-console-")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = testkit.Sluice(); err != nil {
		log.Print(err)
		return 1
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.NoSandbox, chromedp.UserDataDir(filepath.Join(dir, "browser")), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	defer stop()
	var end context.CancelFunc
	chromium, end = chromedp.NewContext(allocator)
	defer end()
	switch err := chromedp.Run(chromium); {
	case errors.Is(err, exec.ErrNotFound):
		chromium = nil
	case err != nil:
		log.Printf("chromium does not start: %v", err)
		return 1
	}
	return m.Run()
}

// program is a running "sluice serve".
type program struct {
	t            *testing.T
	proxy, admin string // URLs
	process      *exec.Cmd
	ended        chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// serve starts the program in front of the sample API. When the test ends it gets SIGTERM, and has to
// end with 0.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, ended: make(chan struct{})}
	p.process = exec.Command(binary, append([]string{"serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	p.process.Env = append(environment(), "GORACE=atexit_sleep_ms=20")
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stderr, err := p.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	go p.read(stderr, started)
	t.Cleanup(p.stop)
	select {
	case <-started:
	case <-p.ended:
		t.Fatalf("the program ends:\n%s", p.logged())
	case <-time.After(patience):
		t.Fatalf("the program does not start:\n%s", p.logged())
	}
	return p
}

// environment is that of the test without the settings of the program.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLUICE_") })
}

func (p *program) read(stderr io.Reader, started chan<- struct{}) {
	defer close(p.ended)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		p.mu.Lock()
		fmt.Fprintf(&p.log, "%s\n", lines.Bytes())
		p.mu.Unlock()
		var r struct{ Msg, Proxy, Admin string }
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Msg == "sluice serves" {
			p.proxy, p.admin = "http://"+r.Proxy, "http://"+r.Admin
			close(started)
		}
	}
}

func (p *program) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *program) stop() {
	_ = p.process.Process.Signal(syscall.SIGTERM)
	<-p.ended
	if err := p.process.Wait(); err != nil {
		p.t.Errorf("the program ends with %v", err)
	}
	if p.t.Failed() {
		p.t.Logf("log of the program:\n%s", p.logged())
	}
}

// ask sends a request to the gateway, and returns the status.
func (p *program) ask(path string, fields ...string) int {
	p.t.Helper()
	return p.send("GET", path, "", fields...)
}

// send is ask with another method, and a form.
func (p *program) send(method, path, form string, fields ...string) int {
	p.t.Helper()
	r, err := http.NewRequest(method, p.proxy+path, strings.NewReader(form))
	if err != nil {
		p.t.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// write makes a file in a directory of the test.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// await waits for what is sure to come.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// page is a page in a window of its own. What its console says, and what it asks of anybody but the
// program, are failures.
type page struct {
	*testing.T
	ctx     context.Context
	program *program

	quiet bool // what the browser says of answers is expected

	mu      sync.Mutex
	dialogs int // that scripts have opened
}

// look is how somebody looks at a page.
type look struct {
	width, height int64
	dark          bool
	noScript      bool
}

var (
	desktop = look{width: 1440, height: 900}
	phone   = look{width: 390, height: 844}
)

// open opens a window of its own, with cookies of its own.
func open(t *testing.T, p *program, l look) *page {
	t.Helper()
	if chromium == nil {
		testkit.Missing(t, "chromium")
	}
	executor := cdp.WithExecutor(chromium, chromedp.FromContext(chromium).Browser)
	cookies, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(executor)
	if err != nil {
		t.Fatal(err)
	}
	window, err := target.CreateTarget("about:blank").WithBrowserContextID(cookies).WithNewWindow(true).Do(executor)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithTargetID(window))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*patience)
	t.Cleanup(cancel)
	g := &page{T: t, ctx: ctx, program: p}
	chromedp.ListenTarget(ctx, g.hears)
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	g.run(
		runtime.Enable(), cdplog.Enable(),
		chromedp.EmulateViewport(l.width, l.height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetFocusEmulationEnabled(true), // another window may be before it
		emulation.SetScriptExecutionDisabled(l.noScript),
		browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorDeny),
	)
	return g
}

// hears is told what the browser says of the page.
func (g *page) hears(event any) {
	switch e := event.(type) {
	case *cdppage.EventJavascriptDialogOpening:
		g.mu.Lock()
		g.dialogs++
		g.mu.Unlock()
		g.Errorf("a dialog opens: %s", e.Message)
	case *runtime.EventExceptionThrown:
		g.Errorf("a script fails: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			text := ""
			for _, a := range e.Args {
				text += " " + string(a.Value)
			}
			g.Errorf("the console says%s", text)
		}
	case *cdplog.EventEntryAdded:
		if !g.quiet && e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			g.Errorf("the browser says: %s %s", e.Entry.Text, e.Entry.URL)
		}
	}
}

func (g *page) run(actions ...chromedp.Action) {
	g.Helper()
	if err := chromedp.Run(g.ctx, actions...); err != nil {
		g.Fatal(err)
	}
}

// visit opens a path of the admin address.
func (g *page) visit(path string) {
	g.Helper()
	g.run(chromedp.Navigate(g.program.admin + path))
}

// js returns what an expression is.
func js[T any](g *page, expression string) (out T) {
	g.Helper()
	for end := time.Now().Add(patience); ; {
		err := chromedp.Run(g.ctx, chromedp.Evaluate(expression, &out))
		var refused *cdproto.Error
		switch {
		case err == nil:
			return out
		case !errors.As(err, &refused) || refused.Code != -32000 || time.Now().After(end): // the page is being left
			g.Fatal(err)
		}
	}
}

// text returns the text that an element shows.
func (g *page) text(selector string) string {
	g.Helper()
	return js[string](g, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// shots is the directory for pictures of the pages, for people to look at; without it none are made.
var shots = os.Getenv("SLUICE_SHOTS")

// shot writes a picture of the whole page.
func (g *page) shot(name string) {
	g.Helper()
	if shots == "" {
		return
	}
	var png []byte
	g.run(chromedp.FullScreenshot(&png, 100))
	if err := errors.Join(os.MkdirAll(shots, 0o755), os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644)); err != nil {
		g.Fatal(err)
	}
}

// accessible holds the page to axe.
func (g *page) accessible(what string) {
	g.Helper()
	axe, err := os.ReadFile("testdata/node/node_modules/axe-core/axe.min.js")
	if err != nil {
		testkit.Missing(g, "axe-core")
	}
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct {
			HTML           string
			FailureSummary string
		}
	}
	// What a debugger evaluates is no script of the page, so that its policy does not refuse it. What
	// it waits for never comes if the browser drops it, as it may where the page moves on.
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeout(g.ctx, patience/3)
		err := chromedp.Run(ctx, chromedp.Evaluate(string(axe)+"\n;0", nil),
			chromedp.Evaluate("axe.run().then(r => r.violations)", &found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		cancel()
		if err == nil {
			break
		}
		if tries == 2 {
			g.Fatalf("%s: axe does not end: %v", what, err)
		}
		g.Logf("%s: axe again: %v", what, err)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			g.Errorf("%s: %s (%s): %s\n%s\n%s", what, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
		}
	}
}
