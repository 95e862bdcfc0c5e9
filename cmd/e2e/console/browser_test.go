package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
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

// patience bounds the wait for a condition that comes true on any machine.
const patience = testkit.Patience

// elsewhere is a name of this machine that the browser takes for another machine. Browsers trust pages of other
// machines less than pages of this one, if they come over plain HTTP.
const elsewhere = "elsewhere.test"

// All tests share one browser, a real Chromium. Each page has its own window and cookies.

// ends are functions that end the browser and remove its files.
var ends []func()

// started returns the browser, and starts it on the first call.
var started = sync.OnceValues(func() (context.Context, error) {
	dir, err := os.MkdirTemp("", "sluice-browser-")
	if err != nil {
		return nil, err
	}
	ends = append(ends, func() { _ = os.RemoveAll(dir) })
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.NoSandbox, chromedp.UserDataDir(dir), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP "+elsewhere+" 127.0.0.1"))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	chromium, end := chromedp.NewContext(allocator)
	ends = append(ends, stop, end)
	return chromium, chromedp.Run(chromium)
})

// runTests runs the tests of a package, and then ends the browser.
func runTests(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(ends) {
		end()
	}
	os.Exit(code)
}

// window is a page in its own window. Warnings and errors in its console, dialogs and scripts that fail are failures of
// the test.
type window struct {
	*testing.T
	Ctx   context.Context
	Site  string // the URL before the paths
	Quiet bool   // errors that the browser logs about responses are expected
}

// look is the size and the settings of a screen.
type look struct {
	Width, Height int64
	Dark          bool
	NoScript      bool
}

var (
	desktop = look{Width: 1440, Height: 900}
	phone   = look{Width: 390, Height: 844}
)

// openWindow opens a window with its own cookies.
func openWindow(t *testing.T, site string, l look) *window {
	t.Helper()
	chromium, err := started()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		testkit.Missing(t, "chromium")
	case err != nil:
		t.Fatalf("chromium does not start: %v", err)
	}
	executor := cdp.WithExecutor(chromium, chromedp.FromContext(chromium).Browser)
	cookies, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(executor)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := target.CreateTarget("about:blank").WithBrowserContextID(cookies).WithNewWindow(true).Do(executor)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithTargetID(tab))
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*patience)
	t.Cleanup(cancel)
	g := &window{T: t, Ctx: ctx, Site: site}
	chromedp.ListenTarget(ctx, g.hears)
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	g.Run(
		runtime.Enable(), cdplog.Enable(),
		chromedp.EmulateViewport(l.Width, l.Height),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetFocusEmulationEnabled(true), // another window may be in front of it
		emulation.SetScriptExecutionDisabled(l.NoScript),
		browser.SetDownloadBehavior(browser.SetDownloadBehaviorBehaviorDeny),
	)
	return g
}

// hears fails the test for errors, warnings and dialogs of the page.
func (g *window) hears(event any) {
	switch e := event.(type) {
	case *cdppage.EventJavascriptDialogOpening:
		g.Errorf("a dialog opens: %s", e.Message)
	case *runtime.EventExceptionThrown:
		g.Errorf("a script fails: %v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			text := ""
			for _, a := range e.Args {
				text += " " + string(a.Value)
			}
			g.Errorf("the console logs%s", text)
		}
	case *cdplog.EventEntryAdded:
		if !g.Quiet && e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			g.Errorf("the browser logs: %s %s", e.Entry.Text, e.Entry.URL)
		}
	}
}

func (g *window) Run(actions ...chromedp.Action) {
	g.Helper()
	if err := chromedp.Run(g.Ctx, actions...); err != nil {
		g.Fatal(err)
	}
}

// Visit opens a path of the site.
func (g *window) Visit(path string) {
	g.Helper()
	g.Run(chromedp.Navigate(g.Site + path))
}

// evaluate returns the value of an expression.
func evaluate[T any](g *window, expression string) (out T) {
	g.Helper()
	for end := time.Now().Add(patience); ; {
		err := chromedp.Run(g.Ctx, chromedp.Evaluate(expression, &out))
		var refused *cdproto.Error
		switch {
		case err == nil:
			return out
		case !errors.As(err, &refused) || refused.Code != -32000 || time.Now().After(end): // -32000: the page is being left
			g.Fatal(err)
		}
	}
}

// Click clicks an element once it is visible and nothing covers it. It clicks in one step, by script: the click of a
// mouse would be lost if the page replaced the element between press and release.
func (g *window) Click(selector string) {
	g.Helper()
	const click = `(e => {
		e?.scrollIntoView({block: 'center', behavior: 'instant'})
		const r = e?.getBoundingClientRect()
		if (!r || !e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2))) return false
		e.click()
		return true
	})(document.querySelector(%q))`
	testkit.Await(g, selector+" can be clicked", func() bool { return evaluate[bool](g, fmt.Sprintf(click, selector)) })
}

// Text returns the text that an element shows.
func (g *window) Text(selector string) string {
	g.Helper()
	return evaluate[string](g, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector))
}

// shots is the directory for screenshots. If it is "", no screenshots are taken.
var shots = os.Getenv("SLUICE_SHOTS")

// Shot takes a screenshot of the whole page.
func (g *window) Shot(name string) {
	g.Helper()
	if shots == "" {
		return
	}
	var png []byte
	g.Run(chromedp.FullScreenshot(&png, 100))
	if err := errors.Join(os.MkdirAll(shots, 0o755), os.WriteFile(filepath.Join(shots, name+".png"), png, 0o644)); err != nil {
		g.Fatal(err)
	}
}

// Accessible fails the test for each violation that axe finds on the page.
func (g *window) Accessible(what string) {
	g.Helper()
	axe, err := os.ReadFile(filepath.Join(testkit.Root(), "cmd/e2e/console/testdata/node/node_modules/axe-core/axe.min.js"))
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
	// A script that a debugger evaluates is not a script of the page, so the page's Content-Security-Policy does not
	// block it. If the page moves on, the browser may drop the promise, and its value then never comes.
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeout(g.Ctx, patience/3)
		err := chromedp.Run(ctx, chromedp.Evaluate(string(axe)+"\n;0", nil),
			chromedp.Evaluate("axe.run().then(r => r.violations)", &found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		cancel()
		if err == nil {
			break
		}
		if tries == 2 {
			g.Fatalf("%s: axe does not finish: %v", what, err)
		}
		g.Logf("%s: axe is run again: %v", what, err)
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			g.Errorf("%s: %s (%s): %s\n%s\n%s", what, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
		}
	}
}
