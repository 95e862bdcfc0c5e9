package printable

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                             "",
		"/a/b?c=d e~":                  "/a/b?c=d e~",
		"Zoë 東京 नमस्ते":                "Zoë 東京 नमस्ते",
		"a\nb\r\x00\x1b[2J\x7f":        "a�b���[2J�",
		"\u0085\u009b31m":              "��31m",
		"a\u2028b\u2029":               "a�b�",
		"\u202euser\u2066\u200f\u061c": "�user���",
		"\u200b\ufeff\u00ad\u2060":     "����",
		"\u3164\u115f\u2800\ufe0f":     "����",
		"\xff\xc0\xafa\xed\xa0\x80":    "���a���",
		"\u0301a":                      "�a",
		"a\u0301\u0302\u0303\u0304b":   "a\u0301\u0302��b",
		"a\u00a0b\u3000":               "a�b�",
		"\U000e0041\ue000\U0010ffff":   "���",
	} {
		if got := Text(in, 100); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	for _, c := range []struct {
		in   string
		most int
		want string
	}{
		{"abcdef", 6, "abcdef"}, {"abcdefg", 6, "abc…"}, {"äöü", 6, "äöü"}, {"äöüx", 6, "ä…"}, {"\n\n", 6, "��"}, {"\n\n\n", 6, "�…"}, {"abcd", 3, "…"},
	} {
		if got := Text(c.in, c.most); got != c.want {
			t.Errorf("%q in %d bytes is %q, want %q", c.in, c.most, got, c.want)
		}
	}
}

func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "15m": 15 * time.Minute, "24h": 24 * time.Hour, "1h30m": 90 * time.Minute, "1h0m1s": time.Hour + time.Second, "1.5s": 1500 * time.Millisecond, "10m": 10 * time.Minute, "10s": 10 * time.Second} {
		if got := Duration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// For any input, Text returns short and valid text of printable characters, which Text does not change again.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b]0;x\a", "a\u202eb", "\xff\xfe", strings.Repeat("\u0301", 50), "\u2028", "é\u009b"} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = 3 + int(uint(most)%500)
		got := Text(s, most)
		if len(got) > most || !utf8.ValidString(got) {
			t.Fatalf("%q in %d bytes is %q", s, most, got)
		}
		for _, r := range got {
			if r < ' ' || r >= 0x7f && r < 0xa1 || unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Bidi_Control, unicode.Cs) {
				t.Fatalf("%q has %U", got, r)
			}
		}
		if again := Text(got, most); again != got {
			t.Fatalf("%q, from %q, becomes %q", got, s, again)
		}
	})
}
