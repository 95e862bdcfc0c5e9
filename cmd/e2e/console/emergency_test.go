package console

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/sluicehq/sluice/cmd/internal/browsertest"
)

// pressing has no rule that counts by address: all come from one here, which would be an alert, too.
const pressing = `
version: 1
rules:
  - {name: per-user, key: ["header:X-User"], missing: skip, limit: 5/hour}
  - {name: watched, key: ["header:X-User"], missing: skip, limit: 2/hour, shadow: true}
`

// api asks the admin API as an admin, and returns what it says.
func (p *program) api(method, path, body string) string {
	p.t.Helper()
	r, err := http.NewRequest(method, p.admin+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if slices.Contains(p.process.Args, "--admin-tokens") {
		r.Header.Set("Authorization", "Bearer admin-token")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("If-Match", "*")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if response.StatusCode > 299 {
		p.t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return string(text)
}

// keepAsking sends a request ten times a second until what is returned is called.
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

// opens clicks what opens the dialog of an act, and waits for its effect.
func (g *page) opens(button string) {
	g.Helper()
	g.Run(chromedp.WaitVisible(button), chromedp.Click(button), chromedp.WaitVisible("dialog[open] #effect"))
}

// does clicks the button of the act once its effect is shown, and waits for the page that says so.
func (g *page) does() {
	g.Helper()
	await(g.T, "it can be done", func() bool {
		return js[bool](g, "document.querySelector('dialog[open] #act-do')?.disabled === false && !document.querySelector('dialog[open] #effect').ariaBusy")
	})
	g.Run(chromedp.Click("dialog[open] #act-do"), chromedp.WaitVisible("#undo"))
}

// Everything that somebody does in an emergency is done by clicking, and shows in the API and at the
// gateway; and is undone.
func TestEmergency(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", write(t, "policy.yaml", pressing), "--rules", "sqlite:"+t.TempDir()+"/rules.db", "--admin-tokens", tokens(t))
	refused := 0
	for n := range 60 {
		if p.ask("/api/users", "X-User: acme", fmt.Sprintf("X-Request-Id: ticket-%d", n)) == 429 {
			refused++
		}
	}
	if refused != 55 {
		t.Fatalf("premise: %d of 60 were refused", refused)
	}
	g := open(t, p, browsertest.Desktop)
	g.signIn("admin")

	t.Run("all becomes a shadow", func(t *testing.T) {
		g.T = t
		g.Visit("/shadow")
		g.opens("#act-shadow-all")
		await(t, "the page says how many would have passed", func() bool {
			return strings.Contains(g.Text("dialog[open] #effect"), "would have passed: 55 of 60")
		})
		if !js[bool](g, "document.querySelector('dialog[open] #act-do').disabled") {
			t.Error("it can be done without the word")
		}
		g.Run(chromedp.SendKeys("dialog[open] #f-word", "shadow"))
		g.does()
		await(t, "nothing is refused", func() bool { return p.ask("/api/users", "X-User: acme") == 200 })
		if said := p.api("GET", "/v1/policy/shadow", ""); !strings.Contains(said, `"on":true`) || !strings.Contains(said, `"ends":"20`) {
			t.Errorf("the API says %s", said)
		}
		if text := g.Text("#watching"); !strings.Contains(text, "Nothing is refused") {
			t.Errorf("the page says %q", text)
		}
		g.Run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#watching"))
		await(t, "it is refused again", func() bool { return p.ask("/api/users", "X-User: acme") == 429 })

		p.api("PUT", "/v1/policy/shadow", `{"until": "always"}`)
		g.Visit("/rules")
		g.Run(chromedp.WaitVisible("#watching"))
		g.Accessible("a shadow of all")
		if text := g.Text(`[aria-label="Warnings"]`); text == "" || strings.Contains(text, "more bytes") {
			t.Errorf("the warnings are cut off: %q", text)
		}
		g.Shot("shadow-all")
		g.opens("#act-enforce-all")
		g.does()
		if s := p.ask("/api/users", "X-User: acme"); s != 429 {
			t.Errorf("it is enforced again, and not refused: %d", s)
		}
	})

	t.Run("the policy before", func(t *testing.T) {
		g.T = t
		p.api("POST", "/v1/rules", `{"name": "extra", "key": ["header:X-Extra"], "missing": "skip", "limit": "1/hour"}`)
		p.api("PUT", "/v1/rules/extra", `{"name": "extra", "key": ["header:X-Extra"], "missing": "skip", "limit": "3/hour"}`)
		ask := func() int { return p.ask("/api/users", "X-Extra: a") }
		if one, two := ask(), ask(); one != 200 || two != 200 {
			t.Fatalf("premise: %d, %d", one, two)
		}
		g.Visit("/policy")
		g.opens("#act-previous")
		if text := g.Text("dialog[open] #effect"); !strings.Contains(text, "limit: 3/hour") || !strings.Contains(text, "limit: 1/hour") {
			t.Errorf("the difference is not shown: %s", text)
		}
		g.does()
		if said := p.api("GET", "/v1/rules/extra", ""); !strings.Contains(said, `"1/hour"`) {
			t.Errorf("the API says %s", said)
		}
		ask()
		if s := ask(); s != 429 {
			t.Errorf("the gateway still has the later policy: %d", s)
		}
		g.Run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#undo"))
		if said := p.api("GET", "/v1/rules/extra", ""); !strings.Contains(said, `"3/hour"`) {
			t.Errorf("undone, the API says %s", said)
		}
	})

	t.Run("an alert is silenced", func(t *testing.T) {
		g.T = t
		ended := p.keepAsking("/api/users", "X-User: acme") // what is over is no alert
		defer ended()
		g.Visit("/")
		await(t, "the first line is about the rule", func() bool { return strings.Contains(g.Text("#headline h1"), "per-user") })
		if strings.Contains(p.api("GET", "/v1/alerts", ""), "silenced\":{") {
			t.Fatal("premise: something is silenced")
		}
		g.opens("#headline-silence")
		g.Run(chromedp.SendKeys("dialog[open] #f-reason", "we know"))
		await(t, "the effect is shown", func() bool { return strings.Contains(g.Text("dialog[open] #effect"), "silenced until") })
		g.does()
		if said := p.api("GET", "/v1/alerts", ""); !strings.Contains(said, `"silences":[{"alert":"refusing:per-user"`) || !strings.Contains(said, "we know") {
			t.Errorf("the API says %s", said)
		}
		await(t, "the first line is about something else", func() bool { return !strings.Contains(g.Text("#headline h1"), "per-user") })
		if text := g.Text("#alerts li[data-silenced]"); !strings.Contains(text, "per-user") || !strings.Contains(text, "by admin: we know") {
			t.Errorf("it is not shown as silenced: %q", text)
		}
		if s := p.ask("/api/users", "X-User: acme"); s != 429 {
			t.Errorf("it has changed what is refused: %d", s)
		}
		g.Run(chromedp.Click("#undo"), chromedp.WaitNotPresent("#undo"))
		await(t, "it is the first line again", func() bool { return strings.Contains(g.Text("#headline h1"), "per-user") })

		p.api("POST", "/v1/alerts/silence", `{"alert": "refusing:per-user", "until": "2126-01-01"}`)
		await(t, "it is silenced again", func() bool { return strings.Contains(g.Text("#alerts li[data-silenced]"), "per-user") })
		g.Accessible("silenced")
		g.Shot("silenced")
	})

	t.Run("a request is explained", func(t *testing.T) {
		g.T = t
		g.Visit("/")
		g.Run(chromedp.Click("#nav-explain"), chromedp.WaitVisible("#id"), chromedp.SendKeys("#id", "ticket-7"), chromedp.Submit("#by-id"), chromedp.WaitVisible("[data-refusal=per-user]"))
		for _, what := range []string{"refused it", "acme", "/api/users", "beyond the limit", "5/hour"} {
			if text := g.Text("[data-refusal=per-user]"); !strings.Contains(text, what) {
				t.Errorf("it does not say %q: %s", what, text)
			}
		}
		if first := js[string](g, "document.querySelector('[data-refusal]').dataset.refusal"); first != "per-user" {
			t.Errorf("%s comes before the rule that refused it", first)
		}
		if !strings.Contains(g.Text("[data-refusal=watched]"), "would have refused it") {
			t.Errorf("the shadow says nothing: %s", g.Text("main"))
		}
		if said := p.api("GET", "/v1/refusals?id=ticket-7", ""); !strings.Contains(said, `"rule":"per-user"`) {
			t.Errorf("the API says %s", said)
		}
		g.Accessible("explained by an ID")
		g.Shot("explained")
		// What is known of the request is in the form; the header that the rule counts by is not kept.
		g.Run(chromedp.SetValue("#headers", "X-User: acme"), chromedp.Click("#explain"), chromedp.WaitVisible("#explained"))
		if text := g.Text("#explained"); !strings.Contains(text, "It is refused. It would pass in") || g.Text("[data-rule=per-user] .badge-bad") != "refuses" {
			t.Errorf("now: %s", text)
		}
		g.Accessible("explained as of now")
	})
	g.T = t

	g.Visit("/audit")
	for _, what := range []string{"changed the settings", "changed the rule extra", "silenced the alert refusing:per-user", "ended the silence of"} {
		await(t, "the audit log has "+what, func() bool { return strings.Contains(g.Text("#audit"), what) })
	}
}
