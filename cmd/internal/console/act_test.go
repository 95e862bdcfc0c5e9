package console

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// does submits the form of an act and returns the page that confirms it.
func (b *browser) does(path string, form url.Values) string {
	b.t.Helper()
	w := b.post(path, form)
	if w.Code != 303 {
		b.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return b.get(w.Header().Get("Location")).Body.String()
}

// undoes undoes the act that a page confirms, and returns the status.
func (b *browser) undoes(page string) int {
	b.t.Helper()
	_, id, found := strings.Cut(page, `name="id" value="`)
	if !found {
		b.t.Fatal("the page has no undo form")
	}
	id, _, _ = strings.Cut(id, `"`)
	return b.post("/undo", url.Values{"id": {id}}).Code
}

// Undoing a silence restores the previous one. If another operator has changed it since, it stays.
func TestSilenceIsUndone(t *testing.T) {
	v := attack(time.Now())
	c := fixture(t, func() *telemetry.View { return v })
	b, ann := newBrowser(t, c, source.Operator), control.Caller{Name: "ann", Role: source.Operator}
	name := v.Headline().Alert
	held := func() string {
		t.Helper()
		list, err := c.Control.Alerts(ann)
		if err != nil || len(list.Silences) > 1 {
			t.Fatal(list, err)
		}
		for _, s := range list.Silences {
			return s.By + " " + s.Reason
		}
		return ""
	}
	do := func(act, reason string) string {
		t.Helper()
		return b.does("/act/"+act, url.Values{"alert": {name}, "for": {"1h"}, "reason": {reason}})
	}
	if status := b.undoes(do("silence", "one")); status != 303 || held() != "" {
		t.Errorf("undoing a silence: status %d, silence %q", status, held())
	}
	first := do("silence", "one")
	if status := b.undoes(do("silence", "two")); status != 303 || held() != "operator one" {
		t.Errorf("undoing a second silence: status %d, silence %q", status, held())
	}
	if status := b.undoes(do("unsilence", "")); status != 303 || held() != "operator one" {
		t.Errorf("undoing the end of a silence: status %d, silence %q", status, held())
	}
	if _, err := c.Control.Silence(t.Context(), ann, control.SilenceRequest{Alert: name, Until: "2126-01-01", Reason: "longer"}, false); err != nil {
		t.Fatal(err)
	}
	if status := b.undoes(first); status != 409 || held() != "ann longer" {
		t.Errorf("undoing after another operator's change: status %d, silence %q", status, held())
	}
}

// Blocks can be undone once, also without a database.
func TestBlockIsUndone(t *testing.T) {
	c := fixture(t, func() *telemetry.View { return &telemetry.View{} })
	b := newBrowser(t, c, source.Operator)
	form := url.Values{"rule": {"search"}, "key.client_ip": {"192.0.2.1"}, "for": {"1h"}}
	first := b.does("/act/block", form)
	until := c.Engine.Blocks()[0].Until
	form.Set("for", "24h")
	if status := b.undoes(b.does("/act/block", form)); status != 303 || len(c.Engine.Blocks()) != 1 || !c.Engine.Blocks()[0].Until.Equal(until) {
		t.Errorf("undoing a longer block: status %d, blocks %v, want until %v", status, c.Engine.Blocks(), until)
	}
	if status := b.undoes(b.does("/act/unblock", form)); status != 303 || len(c.Engine.Blocks()) != 1 {
		t.Errorf("undoing the end of a block: status %d, blocks %v", status, c.Engine.Blocks())
	}
	if status := b.undoes(first); status != 303 || len(c.Engine.Blocks()) != 0 {
		t.Errorf("undoing a block: status %d, blocks %v", status, c.Engine.Blocks())
	}
	if status := b.undoes(first); status != 410 {
		t.Errorf("undoing it twice: status %d", status)
	}
	form.Set("reason", "\xff")
	if w := b.post("/act/block", form); w.Code != 400 || len(c.Engine.Blocks()) != 0 {
		t.Errorf("a form that is not UTF-8: status %d", w.Code)
	}
}

// Pages read the policy in force without copying it, so none of them may change it.
func TestPagesLeaveThePolicyAlone(t *testing.T) {
	c := fixture(t, func() *telemetry.View { return attack(time.Now()) })
	b := newBrowser(t, c, source.Admin)
	admin := control.Caller{Name: "ann", Role: source.Admin}
	texts := func() string {
		p, err := c.Control.InForce(admin)
		if err != nil {
			t.Fatal(err)
		}
		list, err := c.Control.List(admin, control.Overrides, control.Query{})
		if err != nil {
			t.Fatal(err)
		}
		return string(control.JSON(p.Document)) + string(control.JSON(list))
	}
	before := texts()
	const subject = "rule=search&key.client_ip=198.51.100.24"
	for range 2 {
		for _, path := range []string{
			"/", "/rules?q=login&state=enforced", "/rules/api", "/shadow", "/policy", "/overrides", "/subjects", "/subjects?q=198.51.100.24", "/subjects?" + subject,
			"/act/shadow?rule=search", "/act/enforce?rule=crawlers", "/act/shadow-all", "/act/raise?limit=9/hour&" + subject, "/act/block?where=everywhere&" + subject,
			"/act/end-override?override=" + source.OverrideName("search", map[string]string{"client_ip": "198.51.100.24"}),
		} {
			if w := b.get(path); w.Code != 200 {
				t.Errorf("%s: %d", path, w.Code)
			}
			if after := texts(); after != before {
				t.Fatalf("%s has changed the policy in force:\n%s\nwas\n%s", path, after, before)
			}
		}
		c.Engine.ShadowAll()
	}
}
