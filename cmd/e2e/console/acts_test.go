package console

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/internal/testkit"
)

// pressing has no rule that counts by address: all requests of a test come from one address, which would be an alert,
// too.
const pressing = `
version: 1
rules:
  - {name: per-user, key: ["header:X-User"], missing: skip, limit: 5/hour}
  - {name: watched, key: ["header:X-User"], missing: skip, limit: 2/hour, shadow: true}
`

// api calls the admin API as an admin, and returns the body of the response.
func (p *program) api(method, path, body string) string {
	p.Helper()
	r, err := http.NewRequest(method, p.Admin+path, strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "If-Match": {"*"}}
	if p.tokens {
		r.Header.Set("Authorization", "Bearer admin-token")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.Fatal(err)
	}
	if response.StatusCode > 299 {
		p.Fatalf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return string(text)
}

// keepAsking sends a request ten times a second until stop is called.
func (p *program) keepAsking(path string, fields ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	asking.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			p.ask(path, fields...)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
	return func() { cancel(); asking.Wait() }
}

// opens clicks the button that opens the dialog of an action, and waits until the dialog shows the effect.
func (g *page) opens(button string) {
	g.Helper()
	g.Click(button)
	g.Run(chromedp.WaitVisible("dialog[open] #effect"))
}

// does clicks the button of the action once its effect is shown, and waits for the page that confirms the action.
func (g *page) does() {
	g.Helper()
	testkit.Await(g, "the action can be confirmed", func() bool {
		return js[bool](g, "document.querySelector('dialog[open] #act-do')?.disabled === false && !document.querySelector('dialog[open] #effect').ariaBusy")
	})
	g.Click("dialog[open] #act-do")
	g.Run(chromedp.WaitVisible("#undo"))
}

// awaitText waits until an element shows a text, or no longer does.
func (g *page) awaitText(selector, text string, shown bool) {
	g.Helper()
	testkit.Await(g, fmt.Sprintf("%s shows %q: %v", selector, text, shown), func() bool { return strings.Contains(g.Text(selector), text) == shown })
}

// awaitStatus waits until a request of a user gets a status.
func (p *program) awaitStatus(user string, status int) {
	p.Helper()
	testkit.Await(p, fmt.Sprintf("%s gets %d", user, status), func() bool { return p.ask("/api/users", "X-User: "+user) == status })
}

// subjectPage returns the path of the page of a subject of per-user.
func subjectPage(user string) string {
	return "/subjects?" + url.Values{"rule": {"per-user"}, "key.header:X-User": {user}}.Encode()
}

// tokens returns a file with the token that signIn uses.
func tokens(t *testing.T) string {
	return testkit.File(t, "tokens", fmt.Sprintf("admin admin %x\n", sha256.Sum256([]byte("admin-token"))))
}

func (g *page) signIn() {
	g.Helper()
	g.Visit("/")
	g.Run(chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", "admin-token"), chromedp.Submit("#sign-in"), chromedp.WaitVisible("#sign-out"))
}

// On a page that another machine serves over plain HTTP, browsers send only Origin with a form, and no Sec-Fetch-Site.
func TestFormsOverPlainHTTP(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", layered), "--admin-tokens", tokens(t), "--admin-hosts", elsewhere)
	g := open(t, p, desktop)
	g.Quiet = true // the browser logs which fields of the responses it ignores over plain HTTP
	g.Site = strings.Replace(p.Admin, "127.0.0.1", elsewhere, 1)
	g.signIn()
}

// An action in the console takes effect at the gateway, and ends when it is undone. This test is about the dialogs; the
// tests of cmd/sluice check the effect of each action.
func TestActs(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", pressing), "--rules", "sqlite:"+t.TempDir()+"/rules.db", "--admin-tokens", tokens(t))
	for range 60 {
		p.ask("/api/users", "X-User: acme")
	}
	g := open(t, p, desktop)
	g.signIn()

	g.Visit(subjectPage("acme"))
	g.opens("#act-raise")
	g.Run(chromedp.SendKeys("dialog[open] #f-reason", "they pay for it"), chromedp.SetValue("dialog[open] #f-limit", "900/hour"),
		chromedp.Evaluate(`document.querySelector('dialog[open] #f-limit').dispatchEvent(new Event('input', {bubbles: true}))`, nil))
	g.awaitText("dialog[open] #effect", "900", true)
	g.does()
	p.awaitStatus("acme", 200)
	g.awaitText("#overridden", "override", true)
	g.Click("#undo")
	g.Run(chromedp.WaitNotPresent("#overridden"))
	p.awaitStatus("acme", 429)

	p.ask("/api/users", "X-User: umbrella")
	g.Visit(subjectPage("umbrella"))
	g.opens("#act-block")
	g.Run(chromedp.SendKeys("dialog[open] #f-reason", "abuse"))
	g.does()
	p.awaitStatus("umbrella", 403)
	g.Click("#undo")
	g.Run(chromedp.WaitNotPresent("#blocked"))
	p.awaitStatus("umbrella", 200)

	// Shadow mode for all rules requires that the user types a word.
	g.Visit("/shadow")
	g.opens("#act-shadow-all")
	g.awaitText("dialog[open] #effect", "would have been allowed: ", true)
	if !js[bool](g, "document.querySelector('dialog[open] #act-do').disabled") {
		t.Error("the action can be confirmed without the word")
	}
	g.Run(chromedp.SendKeys("dialog[open] #f-word", "shadow"))
	g.does()
	p.awaitStatus("acme", 200)
	g.Click("#undo")
	g.Run(chromedp.WaitNotPresent("#watching"))
	p.awaitStatus("acme", 429)

	// If an alert is silenced, the headline is about something else.
	defer p.keepAsking("/api/users", "X-User: acme")() // without requests, the alert would end
	g.Visit("/")
	g.awaitText("#headline h1", "per-user", true)
	g.opens("#headline-silence")
	g.Run(chromedp.SendKeys("dialog[open] #f-reason", "we know"))
	g.awaitText("dialog[open] #effect", "silenced until", true)
	g.does()
	if said := p.api("GET", "/v1/alerts", ""); !strings.Contains(said, `"silences":[{"alert":"refusing:per-user"`) || !strings.Contains(said, "we know") {
		t.Errorf("the API returns %s", said)
	}
	g.awaitText("#headline h1", "per-user", false)
	g.awaitText("#alerts li[data-silenced]", "per-user", true)
	g.Accessible("silenced")
	g.Shot("silenced")
	g.Click("#undo")
	g.Run(chromedp.WaitNotPresent("#undo"))
	g.awaitText("#headline h1", "per-user", true)

	p.api("PUT", "/v1/policy/shadow", `{"until": "always"}`)
	g.Visit("/rules")
	g.Run(chromedp.WaitVisible("#watching"))
	g.Accessible("a shadow of all")
	g.Shot("shadow-all")
	g.Visit("/audit")
	for _, what := range []string{"they pay for it", "changed the settings", "silenced the alert refusing:per-user", "ended the silence of"} {
		g.awaitText("#audit", what, true)
	}
}
