package answer

import (
	"slices"
	"strings"
	"testing"
)

// So much of Accept is looked at.
func TestLongAccept(t *testing.T) {
	for _, test := range []struct {
		accept []string
		want   int
	}{
		{[]string{"text/plain" + strings.Repeat(" ", maxAccept-10)}, plainText},
		{[]string{"text/plain", strings.Repeat(" ", maxAccept-9)}, problemJSON},
		{append(slices.Repeat([]string{"a/b"}, 1000), "text/plain"), problemJSON},
		{[]string{",,;;==/*\x00\xff"}, problemJSON},
	} {
		if got := negotiate(test.accept); got != test.want {
			t.Errorf("%.60q: %s, want %s", test.accept, offers[got], offers[test.want])
		}
	}
}

// FuzzNegotiate: what is chosen has been asked for, or is the default.
func FuzzNegotiate(f *testing.F) {
	f.Add("text/plain;q=0.5, */*;q=0.1", "application/json")
	f.Add("text/*; q=1.000 ;x", "\";,")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := negotiate([]string{a, b})
		if got == problemJSON {
			return
		}
		kind, _, _ := strings.Cut(offers[got], "/")
		asked := strings.ToLower(a + "," + b)
		if !strings.Contains(asked, offers[got]) && !strings.Contains(asked, kind+"/*") && !strings.Contains(asked, "*/*") {
			t.Errorf("%q: %s", asked, offers[got])
		}
		// Another type changes nothing.
		full := tooMany([]string{a, b, strings.Repeat(",", 4) + "x/y;q=0"})
		if again := negotiate([]string{a, b, "x/y;q=0"}); again != got && !full {
			t.Errorf("%q: %s, then %s", asked, offers[got], offers[again])
		}
	})
}
