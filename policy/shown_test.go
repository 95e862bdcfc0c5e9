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

func TestShownKey(t *testing.T) {
	p := parse(t, shownRules)
	for _, tt := range [][]string{
		{"key/abcdefghijkl/192.0.2.1", "abcd…kl · 192.0.2.1"},
		{"{x}key/abcdefghijk/192.0.2.1", "ab… · 192.0.2.1"},
		{"key/abcde/!", "… · (missing)"},
		{"key/abcdef/!", "ab… · (missing)"},
		{"key/a/192.0.2.1", "… · 192.0.2.1"},
		{"login/Bearer%20abcdefgh", "Bear…gh"},
		{"user/sk%2Dlive", "…"}, // no key is written so
		{"user/alice@example.com", "alice@example.com"},
		{"user/J%C3%BCrgen%20%2F%20%E6%9D%B1%E4%BA%AC", "Jürgen / 東京"},
		{"user/%D8%B9%D9%84%D9%8A", "علي"},
		{"user/%28missing%29", `\(missing)`},
		{"user/!", "(missing)"},
		{"user/a%20%C2%B7%20b", `a \u00b7 b`},
		{"user/a%0D%0Ab%1B[2J", "…"},
		{"user/a%0D%0Ab%1B%5B2J", `a\x0d\x0ab\x1b[2J`},
		{"user/%E2%80%AEgnp.exe", `\u202egnp.exe`},
		{"user/a%E2%80%8Bb", `a\u200bb`},
		{"user/%E3%85%A4", `\u3164`},
		{"user/a%CC%81%CC%81%CC%81%CC%81", "a\u0301\u0301\u0301\\u0301"},
		{"user/%CC%81a", `\u0301a`},
		{"user/%FF%C2%A0", `\xff\u00a0`},
		{"user/%EF%BF%BD", `\ufffd`},
		{"user/%5Cx41", `\\x41`},
		{"user/%20a%20%20b%20", `\x20a \x20b\x20`},
		{"user/#0123456789abcdef0123456789abcdef", "#0123456789abcdef0123456789abcdef"},
		{"key/#0123456789abcdef0123456789abcdef/192.0.2.1", "#012345… · 192.0.2.1"},
		{"private/alice@example.com/GET", "alic…om · GET"},
		{"address/192.0.2.77", "192.0.2.0/24"},
		{"address/2001:db8:1:2::", "2001:db8::/32"},
		{"open/abcdefghijkl", "abcdefghijkl"},
		{"all/", "everybody"},
		{"gone/abcdefghijkl/192.0.2.1", "abcd…kl · 192.0.2.0/24"},
		{"nothing", "…"},
		{"", "…"},
		{"/throttle/user:1%0A", `user:1\x0a`},
		{"{a}/x", "…"},
	} {
		if got := p.ShownKey(tt[0]); got != tt[1] {
			t.Errorf("%s is shown as %s, want %s", tt[0], got, tt[1])
		}
	}
}

// Every instance has the same pseudonyms, now and later: this one was made of the text by
// printf 'sluice show_key ["client_ip" "header:X-User"] 192.0.2.1/bob' | sha256sum
func TestShownHash(t *testing.T) {
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
