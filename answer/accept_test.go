package answer

import (
	"slices"
	"strings"
	"testing"
)

func TestNegotiate(t *testing.T) {
	tests := []struct {
		accept []string
		want   int
	}{
		{nil, problemJSON},
		{[]string{""}, problemJSON},
		{[]string{"*/*"}, problemJSON},
		{[]string{"application/problem+json"}, problemJSON},
		{[]string{"application/json"}, plainJSON},
		{[]string{"Application/JSON; charset=utf-8"}, plainJSON},
		{[]string{"text/plain"}, plainText},
		{[]string{"text/*"}, plainText},
		{[]string{"TEXT/*;q=0.001"}, plainText},
		{[]string{"application/*"}, problemJSON},
		{[]string{"text/html"}, problemJSON},
		{[]string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, problemJSON},
		{[]string{"application/json, text/plain, */*"}, plainJSON}, // named, so preferred
		{[]string{"application/json;q=0.5, text/plain;q=0.9"}, plainText},
		{[]string{"application/json;q=0.5", "text/plain;q=0.25"}, plainJSON},
		{[]string{"application/json;q=0, */*;q=0.1"}, problemJSON},
		{[]string{"application/problem+json;q=0, */*;q=0.1"}, plainJSON},
		{[]string{"application/*;q=0, */*"}, plainText},
		{[]string{"*/*;q=0"}, problemJSON},
		{[]string{"text/plain;q=0.2, application/*;q=0.1"}, plainText},
		{[]string{"text/plain;q=0, text/plain"}, problemJSON}, // the first counts
		{[]string{"text/plain;q=1.5"}, problemJSON},
		{[]string{"text/plain;q=0.1234"}, problemJSON},
		{[]string{"text/plain;q=-1"}, problemJSON},
		{[]string{"text/plain;q=NaN"}, problemJSON},
		{[]string{"text/plain;q=1.001"}, problemJSON},
		{[]string{"text/plain;q=1."}, plainText},
		{[]string{"text/plain;x=\";q=0"}, problemJSON},
		{[]string{",,;;==/*\x00\xff"}, problemJSON},
		{[]string{"/*", "*", "text", "text/", "plain"}, problemJSON},
		{[]string{strings.Repeat("a/b;q=0.5,", 90) + "text/plain"}, plainText},
		{[]string{strings.Repeat("a/b;q=0.5,", 100_000) + "text/plain"}, problemJSON}, // more than is looked at
		{[]string{"text/plain" + strings.Repeat(";a=b", 1000)}, problemJSON},
		{[]string{"text/plain" + strings.Repeat(" ", maxAccept-10)}, plainText},
		{[]string{"text/plain", strings.Repeat(" ", maxAccept-9)}, problemJSON},
		{append(slices.Repeat([]string{"a/b"}, 1000), "text/plain"), problemJSON},
	}
	for _, test := range tests {
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
