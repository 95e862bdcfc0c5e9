package console

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/internal/testkit"
)

// looked has more rules, and the prices that they need.
const looked = `
  - {name: keys, key: [api_key], missing: skip, limit: 1/hour}
  - {name: tokens, key: ["header:X-User"], missing: skip, limit: 20000/day, cost: {tokens: total, estimate: 700}}
  - {name: money, key: ["header:X-User"], missing: skip, limits: [0.50 USD/day, 1000 USD/month], cost: {usd: prices, estimate: 12345}, shadow: true}
prices: {"*": {input: 15, output: 75}}
`

// Every page is accessible, as far as axe can tell, on a light desktop and on a dark phone. With SLUICE_SHOTS, the test
// takes screenshots, and also tests a dark desktop and a light phone.
func TestLooks(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", layered+looked), "--rules", "sqlite:"+t.TempDir()+"/rules.db")
	for user, n := range map[string]int{"heavy": 60, "acme": 12, hostile: 9, "light": 2, "203.0.113.198": 9, "2001:db8:4f00:1200::c0ff:ee": 8} {
		for range n {
			p.ask("/api/users", "X-User: "+user)
		}
	}
	p.ask("/api/users", "X-User: heavy", "X-Request-Id: ticket-7")
	for i := range 3 {
		p.ask("/v1/reports", "X-Api-Key: k-"+strconv.Itoa(i))
		p.ask("/v1/reports", "X-Api-Key: k-"+strconv.Itoa(i))
	}
	for user, until := range map[string]string{"heavy": "2126-12-31", "203.0.113.198": time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "2001:db8:4f00:1200::c0ff:ee": "2127-01-01", "198.51.100.217": "2126-12-31"} {
		p.api("POST", "/v1/overrides", fmt.Sprintf(`{"rule": "per-user", "key": {"header:X-User": %q}, "limit": "2000000/minute burst 400000", "until": %q, "reason": "a launch that marketing has promised to everybody"}`, user, until))
	}
	pages := map[string]string{
		"first": "/", "rules": "/rules", "rule": "/rules/per-user", "subjects": "/subjects", "subject": subjectPage("heavy"), "act": "/act/raise?rule=per-user&key.header%3AX-User=heavy",
		"overrides": "/overrides", "budgets": "/budgets", "shadow": "/shadow", "audit": "/audit", "policy": "/policy", "explain": "/explain?id=ticket-7", "found": "/subjects?q=heavy", "block": "/act/block?rule=per-user&key.header%3AX-User=heavy&where=everywhere",
	}
	looks := map[string]look{"desktop-light": desktop, "phone-dark": {Width: 390, Height: 844, Dark: true}}
	if shots != "" {
		looks["desktop-dark"], looks["phone-light"] = look{Width: 1440, Height: 900, Dark: true}, phone
	}
	for name, l := range looks {
		t.Run(name, func(t *testing.T) {
			g := open(t, p, l)
			g.Visit("/")
			testkit.Await(t, "the page shows the subjects", func() bool { return strings.Contains(g.Text("#who-table"), "heavy") })
			for page, path := range pages {
				g.Visit(path)
				if page == "first" {
					g.Run(chromedp.WaitVisible("#chart canvas"))
				}
				g.Accessible(page + " " + name)
				if wide := js[int](g, "document.documentElement.scrollWidth"); wide > int(l.Width) {
					t.Errorf("%s is %d pixels wide on a screen of %d", page, wide, l.Width)
				}
				if l.Width == phone.Width {
					if cut := js[[]string](g, sideways); len(cut) > 0 {
						t.Errorf("%s: tables that have to be scrolled sideways: %q", page, cut)
					}
				}
				if broken := js[[]string](g, brokenAddresses); len(broken) > 0 {
					t.Errorf("%s: addresses on more than one line: %q", page, broken)
				}
				g.Shot(fmt.Sprintf("%s-%s", page, name))
			}
		})
	}
}

// sideways lists the tables with a last column that is not entirely on the screen.
const sideways = `[...document.querySelectorAll('main .table-wrap')].filter(w => w.checkVisibility() && w.scrollWidth > w.clientWidth + 1 && !w.closest('details')).map(w => w.getAttribute('aria-label') + ': ' + w.scrollWidth + ' on ' + w.clientWidth)`

// brokenAddresses lists the IPv4 addresses that take more than one line.
const brokenAddresses = `[...document.querySelectorAll('main .key')].filter(k => k.checkVisibility() && /^[0-9.]+$/.test(k.textContent) && k.getClientRects().length > 1).map(k => k.textContent)`

// Without a mouse, keys open the search and a rule, and Esc leads back.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", testkit.File(t, "policy.yaml", layered))
	p.ask("/api/users", "X-User: acme")
	g := open(t, p, desktop)
	g.Visit("/rules")
	g.Run(chromedp.KeyEvent("/"))
	testkit.Await(t, "the search has the focus", func() bool { return js[string](g, "document.activeElement.id") == "search" })
	g.Run(chromedp.KeyEvent("\x1b"), chromedp.KeyEvent("2"))
	testkit.Await(t, "the second rule is open", func() bool {
		return js[bool](g, "location.pathname === '/rules/per-user' && document.readyState === 'complete'")
	})
	g.Run(chromedp.KeyEvent("\x1b"))
	testkit.Await(t, "Esc leads back", func() bool { return js[string](g, "location.pathname") != "/rules/per-user" })

	// A dialog starts with its first field. Esc leads back to the link that opened the dialog, or to the link that has
	// replaced it on the page.
	focus := func() string {
		return js[string](g, "document.activeElement.id || document.activeElement.getAttribute('href') || document.activeElement.tagName")
	}
	// The test clicks the link, because the character of an Enter can arrive so late that it opens the list of the
	// dialog's first field. Esc would then close that list instead of the dialog.
	g.Visit(subjectPage("acme"))
	for _, again := range []bool{false, true} {
		g.Run(chromedp.Evaluate("(a => { a.focus(); a.click() })(document.getElementById('act-block'))", nil), chromedp.WaitVisible("dialog[open]"))
		if got := focus(); !strings.HasPrefix(got, "f-") {
			t.Errorf("the dialog starts at %s", got)
		}
		if again { // meanwhile, the page is updated with new links
			g.Run(chromedp.Evaluate("(v => { v.innerHTML = v.innerHTML })(document.getElementById('acts'))", nil))
		}
		g.Run(chromedp.KeyEvent("\x1b"))
		testkit.Await(t, "Esc leads back to the link", func() bool { return focus() == "act-block" })
	}
	g.Run(chromedp.KeyEvent("/"), chromedp.KeyEvent("\x1b"))
	if got := focus(); got == "BODY" || got == "search" {
		t.Errorf("Esc in the search leads to %s", got)
	}
}
