package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

const shownRules = `
rules:
  - {name: key, key: [api_key, client_ip], limit: 10/day}
  - {name: login, key: ["header:Authorization"], limit: 10/day}
  - {name: user, key: ["header:X-User"], limit: 10/day}
  - {name: private, key: ["header:X-User", method], limit: 10/day, show_key: short}
  - {name: address, key: [client_ip], limit: 10/day, show_key: short}
  - {name: open, key: [api_key], limit: 10/day, show_key: whole}
  - {name: hash, key: [client_ip, "header:X-User"], limit: 10/day, show_key: hash}
  - {name: all, limit: 10/day}
`

// mustShow fails the test if a text has characters that are invisible or look like something else.
func mustShow(t *testing.T, shown string) {
	t.Helper()
	for _, r := range shown {
		if r == utf8.RuneError || r != ' ' && !unicode.IsGraphic(r) || unicode.In(r, unicode.Cf, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			t.Errorf("%q shows %U", shown, r)
		}
	}
	if !utf8.ValidString(shown) || strings.TrimSpace(shown) != shown {
		t.Errorf("%q", shown)
	}
}

func FuzzShownValue(f *testing.F) {
	for _, v := range odd {
		f.Add(v)
	}
	p := parse(f, shownRules)
	f.Fuzz(func(t *testing.T, value string) {
		if value == "" {
			return
		}
		written := string(sluice.AppendKeyPart(nil, value))
		for _, rule := range []string{"user/", "open/", "login/", "gone/", "/caller/"} {
			mustShow(t, p.ShownKey(rule+written))
		}
		if whole := p.ShownKey("user/" + written); whole == "(missing)" || strings.Contains(whole, " · ") {
			t.Errorf("%q looks like something else", whole)
		}
		runes := len([]rune(value))
		if short := p.ShownKey("login/" + written); len(value) <= sluice.MaxKeyPart && runes > 1 && !strings.Contains(short, "…") && !strings.Contains(short, "/") {
			t.Errorf("%q shows all of %q", short, value)
		}
	})
}

// The shown keys of requests contain a secret only if the rule has show_key: whole.
func TestShownOfRequests(t *testing.T) {
	t.Parallel()
	r := dice{rand.New(rand.NewPCG(3, 4))}
	e := NewEngine(memory.New(), parse(t, shownRules))
	const secret = "sk_live_4eC39HqLyjWDarjtT1zdp7dc"
	n := 0
	e.Observe(func(_ context.Context, o *Observation) {
		for i, result := range o.Decision.Results {
			shown := o.Shown(i)
			mustShow(t, shown)
			if n++; strings.Contains(shown, secret) != (result.Rule == "open") {
				t.Errorf("%s shows %s", result.Rule, shown)
			}
		}
	})
	for range 50 {
		q := oddRequest(r)
		q.Header = http.Header{"Authorization": {"Bearer " + secret}, "X-User": q.Header["X-User"]}
		e.Decide(t.Context(), q)
	}
	if n != 400 {
		t.Errorf("%d results", n)
	}
}

// If a rule has no show_key, its keys are shortened if a part is secret.
func TestSecretPart(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "parts of keys, and how they are shown") {
		p := parse(t, "rules:\n  - {name: r, limit: 1/day, key: [\""+row.In+"\"]}\n")
		if shown := p.ShownKey("r/0123456789abcdef"); shown != row.Want || SecretPart(row.In) != (shown != "0123456789abcdef") {
			t.Errorf("%s is shown as %s, want %s; secret: %v", row.In, shown, row.Want, SecretPart(row.In))
		}
	}
	for _, part := range []string{"", "cookie", "cookie:", "nonsense", "*"} {
		if SecretPart(part) {
			t.Errorf("%q, which is not a key part, is secret", part)
		}
	}
}

func TestShownKey(t *testing.T) {
	t.Parallel()
	p := parse(t, shownRules)
	for _, row := range names(t, "keys that are shown") {
		if got := p.ShownKey(row.In); got != row.Want {
			t.Errorf("%s is shown as %s, want %s", row.In, got, row.Want)
		}
	}
}

// A subject can be found by any spelling, and is shown in the spelling by which it was found.
func TestSpelling(t *testing.T) {
	t.Parallel()
	e := engine(t, `rules:
  - {name: login, key: [client_ip, "body:username"], limit: 1/day}
  - {name: hashed, key: ["body:username"], limit: 1/day, show_key: hash}
`)
	for name, long := range map[string]bool{"Lucy": false, strings.Repeat("y", sluice.MaxKeyPart+1): true} {
		e.observers = nil
		e.Observe(func(_ context.Context, o *Observation) {
			if is := o.Policy().ShownKey(o.Key(1)); o.Shown(1) != is {
				t.Errorf("the pseudonym %s is not that of the counted key, %s", o.Shown(1), is)
			}
			if sent := o.Sent(0); (sent == o.Key(0)) != long {
				t.Errorf("%.20s is counted as %s, and was sent as %s", name, o.Key(0), sent)
			}
		})
		r := get("/", "Content-Type: "+jsonType)
		r.Body = body(fmt.Sprintf(`{"username":%q}`, name))
		pass(t, e, r)
	}
	lucy := subjectOf(t, e, "login", map[string]string{"client_ip": "192.0.2.1", "body:username": "Lucy"})
	same := must(e.SubjectOf("login/192.0.2.1/Lucy"))
	folded := must(e.SubjectOf(lucy.Key()))
	for s, want := range map[*Subject]string{lucy: "Lucy", same: "Lucy", folded: "lucu"} {
		if s.Key() != "login/192.0.2.1/lucu" || s.Values()["body:username"] != want || s.Shown() != "192.0.2.1 · "+want {
			t.Errorf("%s is shown as %q, %s; want %s", s.Key(), s.Values(), s.Shown(), want)
		}
	}
	if shown := e.Policy().ShownSent("login/192.0.2.1/maru", "login/mary"); shown != "192.0.2.1 · maru" {
		t.Errorf("a spelling of another key is shown: %s", shown)
	}
}
