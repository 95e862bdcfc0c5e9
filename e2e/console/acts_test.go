package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
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
	g.visit("/")
	g.run(chromedp.WaitVisible("#token"), chromedp.SendKeys("#token", role+"-token"), chromedp.Submit("#sign-in"), chromedp.WaitVisible("#sign-out"))
}

// subjectPage is the page of a subject of per-user.
func subjectPage(user string) string {
	return "/subjects?" + url.Values{"rule": {"per-user"}, "key.header:X-User": {user}}.Encode()
}

// An override that somebody makes by clicking is in force, and gone once it is undone; so is a block.
func TestActs(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", write(t, "policy.yaml", layered), "--rules", "sqlite:"+t.TempDir()+"/rules.db", "--admin-tokens", tokens(t))
	const user = "acme"
	for range 6 {
		p.ask("/api/users", "X-User: "+user)
	}
	if s := p.ask("/api/users", "X-User: "+user); s != 429 {
		t.Fatalf("premise: %d", s)
	}
	g := open(t, p, desktop)
	g.signIn("operator")
	g.visit(subjectPage(user))
	g.run(chromedp.Click("#act-raise"), chromedp.WaitVisible("dialog[open] #f-limit"), chromedp.SendKeys("dialog[open] #f-reason", "they pay for it"),
		chromedp.SetValue("dialog[open] #f-limit", "9/hour"), chromedp.Evaluate(`document.querySelector('dialog[open] #f-limit').dispatchEvent(new Event('input', {bubbles: true}))`, nil))
	await(t, "the effect is shown before it is done", func() bool {
		return strings.Contains(g.text("dialog[open] #effect"), "9") && js[bool](g, "!document.querySelector('dialog[open] #act-do').disabled")
	})
	g.run(chromedp.Click("dialog[open] #act-do"), chromedp.WaitVisible("#undo"))
	await(t, "the override is in force", func() bool { return p.ask("/api/users", "X-User: "+user) == 200 })
	if !strings.Contains(g.text("#overridden"), "override") {
		t.Error("the page does not say that there is an override")
	}
	g.run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#overridden"))
	await(t, "it is undone", func() bool { return p.ask("/api/users", "X-User: "+user) == 429 })

	const other = "umbrella"
	if s := p.ask("/api/users", "X-User: "+other); s != 200 {
		t.Fatalf("premise: %d", s)
	}
	g.visit(subjectPage(other))
	g.run(chromedp.Click("#act-block"), chromedp.WaitVisible("dialog[open] #f-reason"), chromedp.SendKeys("dialog[open] #f-reason", "abuse"))
	await(t, "the effect is shown", func() bool {
		return js[bool](g, "!document.querySelector('dialog[open] #act-do').disabled && !document.querySelector('dialog[open] #effect').ariaBusy")
	})
	g.run(chromedp.Click("dialog[open] #act-do"), chromedp.WaitVisible("#blocked"))
	await(t, "the block is in force", func() bool { return p.ask("/api/users", "X-User: "+other) == 403 })
	g.run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#blocked"))
	await(t, "it is lifted", func() bool { return p.ask("/api/users", "X-User: "+other) == 200 })

	g.visit("/audit")
	for _, what := range []string{"operator", "override", "they pay for it"} {
		await(t, "the audit log has "+what, func() bool { return strings.Contains(g.text("#audit"), what) })
	}
}

// A viewer sees no buttons, and gets 403 for what is behind them. Without a token nobody sees anything.
func TestViewer(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", write(t, "policy.yaml", layered), "--rules", "sqlite:"+t.TempDir()+"/rules.db", "--admin-tokens", tokens(t))
	p.ask("/api/users", "X-User: acme")
	g := open(t, p, desktop)
	g.signIn("viewer")
	for _, path := range []string{"/", "/rules", "/rules/per-user", subjectPage("acme"), "/overrides", "/shadow", "/policy", "/audit"} {
		g.visit(path)
		if acts := js[[]string](g, `[...document.querySelectorAll('main a[data-dialog], main form[method=post]')].map(e => e.outerHTML)`); len(acts) > 0 {
			t.Errorf("a viewer sees at %s: %s", path, acts)
		}
	}
	// The cookie is the browser's, and so is the origin: only the role is missing.
	for _, path := range []string{"/act/raise", "/act/block", "/act/reset", "/act/shadow", "/policy/apply", "/undo"} {
		form := url.Values{"rule": {"per-user"}, "key.header:X-User": {"acme"}, "limit": {"9/hour"}, "until": {"2126-01-01"}}.Encode()
		g.quiet = true // the browser tells of every 403
		status := js[int](g, `(() => { const r = new XMLHttpRequest(); r.open('POST', '`+path+`', false); r.setRequestHeader('Content-Type', 'application/x-www-form-urlencoded');
			r.send('`+form+`&csrf=' + encodeURIComponent(document.querySelector('input[name=csrf]')?.value ?? '')); return r.status })()`)
		if status != 403 {
			t.Errorf("POST %s by a viewer: %d", path, status)
		}
	}
	if s := p.ask("/api/users", "X-User: acme"); s != 200 {
		t.Errorf("something was changed: %d", s)
	}
	stranger := open(t, p, desktop)
	for _, path := range []string{"/", "/rules", "/policy", "/subjects?q=acme"} {
		stranger.visit(path)
		if !js[bool](stranger, "!!document.getElementById('token')") || strings.Contains(stranger.text("body"), "per-user") {
			t.Errorf("a stranger sees %s: %s", path, stranger.text("body"))
		}
	}
}
