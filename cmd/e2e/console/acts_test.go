package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/cmd/internal/browsertest"
)

// tokens writes a file of tokens, one for each role, that are called as the role is.
func tokens(t *testing.T) string {
	t.Helper()
	text := ""
	for _, role := range []string{"viewer", "operator", "admin"} {
		sum := sha256.Sum256([]byte(role + "-token"))
		text += role + " " + role + " " + hex.EncodeToString(sum[:]) + "\n"
	}
	return write(t, "tokens", text)
}

// signIn signs in with the token of a role.
func (g *page) signIn(role string) {
	g.Helper()
	g.Visit("/")
	g.Run(chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", role+"-token"), chromedp.Submit("#sign-in"), chromedp.WaitVisible("#sign-out"))
}

// subjectPage is the page of a subject of per-user.
func subjectPage(user string) string {
	return "/subjects?" + url.Values{"rule": {"per-user"}, "key.header:X-User": {user}}.Encode()
}

// An override and a block that are made by clicking are in force, and gone once they are undone.
func TestActs(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", write(t, "policy.yaml", layered), "--rules", "sqlite:"+t.TempDir()+"/rules.db", "--admin-tokens", tokens(t))
	for range 6 {
		p.ask("/api/users", "X-User: acme")
	}
	g := open(t, p, browsertest.Desktop)
	g.signIn("operator")
	g.Visit(subjectPage("acme"))
	g.opens("#act-raise")
	g.Run(chromedp.SendKeys("dialog[open] #f-reason", "they pay for it"), chromedp.SetValue("dialog[open] #f-limit", "9/hour"),
		chromedp.Evaluate(`document.querySelector('dialog[open] #f-limit').dispatchEvent(new Event('input', {bubbles: true}))`, nil))
	await(t, "the effect is shown before it is done", func() bool { return strings.Contains(g.Text("dialog[open] #effect"), "9") })
	g.does()
	await(t, "the override is in force", func() bool { return p.ask("/api/users", "X-User: acme") == 200 })
	if !strings.Contains(g.Text("#overridden"), "override") {
		t.Error("the page does not say that there is an override")
	}
	g.Run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#overridden"))
	await(t, "it is undone", func() bool { return p.ask("/api/users", "X-User: acme") == 429 })

	p.ask("/api/users", "X-User: umbrella")
	g.Visit(subjectPage("umbrella"))
	g.opens("#act-block")
	g.Run(chromedp.SendKeys("dialog[open] #f-reason", "abuse"))
	g.does()
	await(t, "the block is in force", func() bool { return p.ask("/api/users", "X-User: umbrella") == 403 })
	g.Run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#blocked"))
	await(t, "it is lifted", func() bool { return p.ask("/api/users", "X-User: umbrella") == 200 })
	g.Visit("/audit")
	await(t, "the audit log has it", func() bool { return strings.Contains(g.Text("#audit"), "they pay for it") })
}

// A viewer's cookie and origin do not make up for the role, and a browser without a token gets nowhere.
func TestViewer(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", write(t, "policy.yaml", layered), "--admin-tokens", tokens(t))
	p.ask("/api/users", "X-User: acme")
	g := open(t, p, browsertest.Desktop)
	g.signIn("viewer")
	g.Visit(subjectPage("acme"))
	if acts := js[[]string](g, `[...document.querySelectorAll('main a[data-dialog], main form[method=post]')].map(e => e.outerHTML)`); len(acts) > 0 {
		t.Errorf("a viewer sees %s", acts)
	}
	g.Quiet = true // the browser logs every 403
	status := js[int](g, `(() => { const r = new XMLHttpRequest(); r.open('POST', '/act/block', false);
		r.setRequestHeader('Content-Type', 'application/x-www-form-urlencoded');
		r.send('rule=per-user&key.header:X-User=acme&until=2126-01-01');
		return r.status })()`)
	if status != 403 {
		t.Errorf("a block by a viewer: %d", status)
	}
	stranger := open(t, p, browsertest.Desktop)
	for _, path := range []string{"/", "/policy", "/subjects?q=acme"} {
		stranger.Visit(path)
		if !js[bool](stranger, "!!document.getElementById('token')") || strings.Contains(stranger.Text("body"), "per-user") {
			t.Errorf("without a token %s shows: %s", path, stranger.Text("body"))
		}
	}
}
