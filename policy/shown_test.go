package policy

import (
	"context"
	"math/rand/v2"
	"net/http"
	"regexp"
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

// Every instance has the same pseudonyms, now and later: this one was made of the text by
// printf 'sluice show_key ["client_ip" "header:X-User"] 192.0.2.1/bob' | sha256sum
func TestShownHash(t *testing.T) {
	t.Parallel()
	p := parse(t, shownRules)
	seen := map[string]string{}
	for _, key := range []string{"hash/192.0.2.1/bob", "hash/192.0.2.1/Bob", "hash/192.0.2.2/bob", "hash/!/bob"} {
		shown := p.ShownKey(key)
		if !regexp.MustCompile("^[0-9a-f]{12}$").MatchString(shown) || seen[shown] != "" {
			t.Errorf("%s is shown as %s, as is %s", key, shown, seen[shown])
		}
		seen[shown] = key
	}
	if a, b := p.ShownKey("hash/192.0.2.1/bob"), p.ShownKey("{192.0.2.1}hash/192.0.2.1/bob"); a != "e300dc702761" || a != b {
		t.Errorf("bob is %s, with a hash tag %s", a, b)
	}
}

// mustShow reports what does not show, or shows as something else.
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
		if whole := p.ShownKey("user/" + written); whole == missingShown || strings.Contains(whole, partsBetween) {
			t.Errorf("%q looks like something else", whole)
		}
		runes := len([]rune(value))
		if short := p.ShownKey("login/" + written); len(value) <= sluice.MaxKeyPart && runes > 1 && !strings.Contains(short, "…") && !strings.Contains(short, "/") {
			t.Errorf("%q is all of %q", short, value)
		}
	})
}

// What is shown of the keys of real requests is what their rule allows.
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

// The keys of a rule that does not say how they are shown are shortened if a part is secret.
func TestSecretPart(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"api_key", "cookie:session", "jwt:sub", "header:authorization", "header:X-User", "query:api_key", "attr:api_key", "tls_fingerprint", "method"} {
		p := parse(t, "rules:\n  - {name: r, limit: 1/day, key: [\""+part+"\"]}\n")
		shown := p.ShownKey("r/0123456789abcdef")
		if shown != "0123456789abcdef" && shown != Shorten("0123456789abcdef") {
			t.Errorf("%s is shown as %s", part, shown)
		}
		if SecretPart(part) != (shown != "0123456789abcdef") {
			t.Errorf("SecretPart(%q) is %v, and the key is shown as %s", part, SecretPart(part), shown)
		}
	}
	for _, part := range []string{"", "cookie", "cookie:", "nonsense", "*"} {
		if SecretPart(part) {
			t.Errorf("%q, which is no part of a key, is secret", part)
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

func TestShowsWhole(t *testing.T) {
	p := compile(t, Document{Rules: []Rule{
		{Name: "address", Key: []string{"client_ip"}, Limit: "1/day"}, {Name: "secret", Key: []string{"api_key"}, Limit: "1/day"},
		{Name: "told", Key: []string{"api_key"}, Limit: "1/day", ShowKey: "whole"}, {Name: "hashed", Key: []string{"client_ip"}, Limit: "1/day", ShowKey: "hash"},
	}})
	for rule, want := range map[string]bool{"address": true, "secret": false, "told": true, "hashed": false, "unknown": false} {
		if got := p.ShowsWhole(rule); got != want {
			t.Errorf("%s shows whole keys: %v", rule, got)
		}
	}
}
