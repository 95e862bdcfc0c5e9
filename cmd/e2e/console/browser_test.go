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

// patience bounds the wait for a condition that is sure to come on any machine.
const patience = testkit.Patience

// elsewhere is a name of this machine that the browser takes for another machine's. It trusts what it gets from
// there over plain HTTP less than what it gets from this machine.
const elsewhere = "elsewhere.test"

// All tests share one browser, a real Chromium, and each page has a window and cookies of its own.

// ends ends the browser and removes its files.
var ends []func()

// started returns the browser, which it starts for the first test.
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

// runTests runs the tests of a package, and ends the browser.
func runTests(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(ends) {
		end()
	}
	os.Exit(code)
}

// window is a page in a window of its own. Warnings and errors of its console, dialogs and scripts that fail are
// failures of the test.
type window struct {
	*testing.T
	Ctx   context.Context
	Site  string // the URL that paths belong to
	Quiet bool   // errors that the browser logs of answers are expected
}

// look is how a page is looked at.
type look struct {
	Width, Height int64
	Dark          bool
	NoScript      bool
}

var (
	desktop = look{Width: 1440, Height: 900}
	phone   = look{Width: 390, Height: 844}
)

// openWindow opens a window of its own, with cookies of its own.
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
		emulation.SetFocusEmulationEnabled(true), // another window may be before it
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
			g.Errorf("the console says%s", text)
		}
	case *cdplog.EventEntryAdded:
		if !g.Quiet && e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning {
			g.Errorf("the browser says: %s %s", e.Entry.Text, e.Entry.URL)
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

// evaluate returns what an expression is.
func evaluate[T any](g *window, expression string) (out T) {
	g.Helper()
	for end := time.Now().Add(patience); ; {
		err := chromedp.Run(g.Ctx, chromedp.Evaluate(expression, &out))
		var refused *cdproto.Error
		switch {
		case err == nil:
			return out
		case !errors.As(err, &refused) || refused.Code != -32000 || time.Now().After(end): // the page is being left
			g.Fatal(err)
		}
	}
}

// Click clicks an element once it shows and nothing covers it. The page does so in one step: a press and a
// release of the mouse would be lost if the element was replaced between them.
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

// shots is the directory for pictures of the pages, for people to look at; without it none are made.
var shots = os.Getenv("SLUICE_SHOTS")

// Shot writes a picture of the whole page.
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

// Accessible holds the page to axe.
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
	// What a debugger evaluates is no script of the page, so that its policy does not refuse it. What
	// it waits for never comes if the browser drops it, as it may where the page moves on.
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeout(g.Ctx, patience/3)
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
